"""Whether an engine's device memory grows slowly while it serves. Pure.

A creep ends in a spill, hours later. Covers finding it; what to do about it is decided
elsewhere. Bounded memory: one look per bucket of a minute.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING

from mtpd.engine.memory_look import grown_vram
from mtpd.types import Value
from mtpd.units import MIB

if TYPE_CHECKING:
    from mtpd.engine.memory_look import MemoryLook

__all__ = ["Creep"]

BUCKET_S = 60.0
BUCKETS = 60
"""An hour, a look a minute."""
LEAST = 10
"""Minutes of growth before it is called one: a first long prompt grows memory once."""
LEAST_BYTES = 64 * MIB


class Creep:
    """Collects looks at one engine; says once that its memory creeps.

    Attributes:
        grown_bytes: By how much it grew over the window when it was found.
        window_s: How long the window was.
        full_in_s: When the card is full if it goes on like this, None where its size is
            unknown.
    """

    def __init__(self) -> None:
        self._looks: deque[MemoryLook] = deque(maxlen=BUCKETS)
        self._found = False
        self.grown_bytes = 0
        self.window_s = 0.0
        self.full_in_s: float | None = None

    def add(self, look: MemoryLook) -> bool:
        """Take a look in; whether it shows a creep that was not said before."""
        if self._looks and look.at_s - self._looks[-1].at_s < BUCKET_S:
            return False
        self._looks.append(look)
        if self._found or len(self._looks) <= LEAST:
            return False
        self._found = self._creeps(list(self._looks)[-LEAST - 1 :])
        return self._found

    def _creeps(self, looks: list[MemoryLook]) -> bool:
        """It grew in most minutes, shrank in none, and by enough in all."""
        steps = [grown_vram(one, other) for one, other in pairwise(looks)]
        known = [step for step in steps if step is not None]
        if len(known) < len(steps) or min(known) < 0:
            return False
        if sum(step > 0 for step in known) * 2 <= len(known) or sum(known) < LEAST_BYTES:
            return False
        self.grown_bytes = sum(known)
        self.window_s = looks[-1].at_s - looks[0].at_s
        total, used = looks[-1].vram_total_bytes, looks[-1].vram_used_bytes
        if isinstance(total, Value) and isinstance(used, Value):
            rate = self.grown_bytes / self.window_s
            self.full_in_s = max(0.0, (total.value - used.value) / rate)
        return True
