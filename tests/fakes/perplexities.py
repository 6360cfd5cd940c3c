"""Perplexities of study 000 with the chunks that they could have come from."""

from __future__ import annotations

import math

__all__ = ["BASE_B2", "CHUNKS", "UNCENSORED_B2", "running"]

CHUNKS = 32
BASE_B2, UNCENSORED_B2 = 5.7722, 5.8404
"""Study 000, the symmetric pair: +1.2 %."""


def running(perplexity: float, *, chunks: int = CHUNKS, own: float = 0.0) -> tuple[float, ...]:
    """Values after each chunk that end at ``perplexity``, as printed, with four decimals.

    Every text has easy and hard parts, here a wave that all models share; ``own`` is how far a
    chunk of this model strays from it.
    """
    waves = [0.3 * math.sin(j) + own * math.cos(3 * j) for j in range(1, chunks + 1)]
    level = math.log(perplexity) - math.fsum(waves) / chunks
    sums = [math.fsum(waves[:j]) + j * level for j in range(1, chunks + 1)]
    return tuple(round(math.exp(total / j), 4) for j, total in enumerate(sums, start=1))
