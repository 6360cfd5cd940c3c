"""Random numbers of one world: a stream for each purpose, all of one seed.

What one part draws does not move what another part draws.
"""

from __future__ import annotations

import random

__all__ = ["Chance"]


class Chance:
    """The streams of a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, random.Random] = {}

    def of(self, purpose: str) -> random.Random:
        """The stream of a purpose."""
        if purpose not in self._streams:
            self._streams[purpose] = random.Random(f"{self.seed}/{purpose}")  # noqa: S311 - a world, no secret
        return self._streams[purpose]
