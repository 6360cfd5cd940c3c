"""What a daemon holds, looked at from outside, and how fast it grows."""

from __future__ import annotations

import json
import math
import signal
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Held", "Slope", "held", "slope"]

SAID_S = 60.0
T95 = 2.0
"""Student's t of a two-sided 95 % interval, for some 60 degrees of freedom; more for fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """At one instant; ``objects`` are those that the garbage collector knows after it
    ran, but for what rings hold."""

    rss_bytes: int
    objects: int
    fds: int
    threads: int
    tasks: int
    children: int

    @property
    def countable(self) -> dict[str, int]:
        """What does not depend on how much was asked."""
        return {name: getattr(self, name) for name in ("fds", "threads", "tasks", "children")}


@dataclass(frozen=True, slots=True)
class Slope:
    """Growth for one more of something, with its 95 % interval."""

    least: float
    middle: float
    most: float

    def __str__(self) -> str:
        """The middle and the interval."""
        return f"{self.middle:.4g} ({self.least:.4g} to {self.most:.4g})"


async def held(pid: int, file: Path) -> Held:
    """Ask a ``tests.fakes.counted`` that writes to this file, and look at its process."""
    await anyio.Path(file).unlink(missing_ok=True)
    process = psutil.Process(pid)
    process.send_signal(signal.SIGUSR1)
    with anyio.fail_after(SAID_S):
        while not file.exists():  # noqa: ASYNC110, ASYNC240 - the file tells nobody
            await anyio.sleep(0.01)
    counts = json.loads(await anyio.Path(file).read_text())
    with process.oneshot():
        return Held(
            rss_bytes=process.memory_info().rss,
            fds=process.num_fds(),
            threads=process.num_threads(),
            children=len(process.children()),
            **counts,
        )


def slope(at: Sequence[float], values: Sequence[float]) -> Slope:
    """The least squares line through the values, and how sure it is."""
    line = statistics.linear_regression(at, values)
    middle = statistics.fmean(at)
    off = sum((y - line.slope * x - line.intercept) ** 2 for x, y in zip(at, values, strict=True))
    spread = sum((x - middle) ** 2 for x in at)
    freedom = len(at) - 2
    about = T95 * (1 + 1.2 / freedom) * math.sqrt(off / freedom / spread)
    return Slope(line.slope - about, line.slope, line.slope + about)
