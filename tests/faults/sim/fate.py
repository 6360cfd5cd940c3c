"""What is going to happen to one process, drawn before it is born."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import random

__all__ = ["CRASHED", "Fate", "Words", "draw"]

Words = tuple[bytes, int]
"""Last words, and the exit code."""

BAD_FLAG: Words = (b"error: invalid argument: --what\n", 1)
CRASHED: Words = (b"GGML_ASSERT(n > 0) failed\n", -6)
SILENT: Words = (b"", 1)
SEGFAULT: Words = (b"", -11)
OOM_KILLED: Words = (b"", -9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """One life.

    Attributes:
        born: Whether the process can be created at all.
        load_s: How long the load takes; it prints all along.
        ends_loading: Its end in the middle of the load, or None.
        stalls: It prints nothing any more in the middle of the load, and never ends.
        canary: What becomes of the first completion.
        ends_serving: After how many seconds of serving it ends, and how; or None.
        hangs_s: After how many seconds of serving it answers nothing any more; or None.
        loses_card_s: After how many it says that the card is lost; or None.
        spills: Its memory is less than it says.
        deaf: SIGTERM does nothing.
        term_s: How long it takes to end after SIGTERM.
        wedged_s: For how long the kernel does not let go of it after SIGKILL.
        lag_s: How long the card keeps its memory after its end.
    """

    born: bool = True
    load_s: float = 5.0
    ends_loading: Words | None = None
    stalls: bool = False
    canary: Literal["comes", "fails", "hangs"] = "comes"
    ends_serving: tuple[float, Words] | None = None
    hangs_s: float | None = None
    loses_card_s: float | None = None
    spills: bool = False
    deaf: bool = False
    term_s: float = 0.3
    wedged_s: float = 0.0
    lag_s: float = 0.5


def draw(rng: random.Random, storm: float) -> Fate:
    """Draw a life; ``storm`` in [0, 1] is how much goes wrong in this world."""

    def happens(chance: float) -> bool:
        return rng.random() < chance * storm

    return Fate(
        born=not happens(0.05),
        load_s=rng.uniform(30.0, 400.0) if happens(0.1) else rng.uniform(0.3, 20.0),
        ends_loading=rng.choice([BAD_FLAG, CRASHED, SILENT, SEGFAULT]) if happens(0.2) else None,
        stalls=happens(0.08),
        canary=rng.choice(["fails", "hangs"]) if happens(0.08) else "comes",
        ends_serving=(
            (rng.expovariate(1 / 90.0), rng.choice([CRASHED, SILENT, SEGFAULT, OOM_KILLED]))
            if happens(0.35)
            else None
        ),
        hangs_s=rng.expovariate(1 / 90.0) if happens(0.12) else None,
        loses_card_s=rng.expovariate(1 / 90.0) if happens(0.06) else None,
        spills=happens(0.05),
        deaf=happens(0.15),
        term_s=rng.uniform(0.0, 2.5),
        wedged_s=rng.choice([3.0, 20.0, 90.0, math.inf]) if happens(0.06) else 0.0,
        lag_s=rng.uniform(25.0, 60.0) if happens(0.03) else rng.uniform(0.0, 8.0),
    )
