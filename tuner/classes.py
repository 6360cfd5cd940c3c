"""The classes of live requests whose acceptance is kept apart.

Acceptance depends on the text and on how it is sampled, so a mean over all requests moves
whenever the mix does. A class is cheap to tell from a request: length of the prompt, what
the text mostly is, whether a reasoning trace is written, and the sampling temperature.
Telling code from prose is the caller's part; ``Kind.MIXED`` is the honest answer in doubt.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

__all__ = ["Band", "Kind", "Sampling", "WorkloadClass", "band_of", "sampling_of"]

SHORT_TOKENS: Final = 1024
"""Prompt tokens up to which a prompt is short."""

LONG_TOKENS: Final = 8192
"""Prompt tokens from which a prompt is long: attention then costs a visible part of a step."""


class Band(enum.StrEnum):
    """Length of the prompt."""

    SHORT = "short"
    MEDIUM = "medium"
    LONG = "long"


class Kind(enum.StrEnum):
    """What the text mostly is."""

    CODE = "code"
    PROSE = "prose"
    MIXED = "mixed"


class Sampling(enum.StrEnum):
    """How tokens are picked; a temperature lowers the acceptance (arXiv 2606.12370)."""

    GREEDY = "greedy"
    SAMPLED = "sampled"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class WorkloadClass:
    """One class of requests.

    Attributes:
        band: Length of the prompt.
        kind: What the text mostly is.
        sampling: Temperature 0 or above.
        reasoning: Whether a reasoning trace is written.
    """

    band: Band = Band.SHORT
    kind: Kind = Kind.MIXED
    sampling: Sampling = Sampling.GREEDY
    reasoning: bool = False

    def __str__(self) -> str:
        """Short name for logs and sentences, e.g. ``long/code/greedy``."""
        name = f"{self.band}/{self.kind}/{self.sampling}"
        return f"{name}/reasoning" if self.reasoning else name


def band_of(prompt_tokens: int) -> Band:
    """Band of a prompt of this many tokens, cached ones included."""
    if prompt_tokens <= SHORT_TOKENS:
        return Band.SHORT
    return Band.MEDIUM if prompt_tokens < LONG_TOKENS else Band.LONG


def sampling_of(temperature: float) -> Sampling:
    """Class of a sampling temperature; a negative one means greedy, as in the engine."""
    return Sampling.SAMPLED if temperature > 0 else Sampling.GREEDY
