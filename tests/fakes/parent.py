"""A daemon in small, to be killed: ``python -m tests.fakes.parent PREFIX SEED DIRECTORY [POINT]``.

Runs three actors that start and stop engines for ever, at random but seeded moments: two
with tiny children (one deaf), one with the scripted llama-server, which takes its time to
load. Engine ids begin with PREFIX. Prints a line once everything has been started once.
With POINT it kills itself the second time that this fault point is reached.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

sys.path.insert(0, str(Path(__file__).parents[2]))

from mtpd.supervise.probe import EngineProbe
from tests.fakes.supervision import Stage, scripted, tiny, until

if TYPE_CHECKING:
    from mtpd.supervise.runner import EngineActor
    from mtpd.types import LaunchPlan


class Suicide:
    """Ends the parent at a named point, not the first time."""

    def __init__(self, point: str | None) -> None:
        self._point, self._hits = point, 0

    def hit(self, point: str) -> None:
        self._hits += point == self._point
        if self._hits > 1:
            os.kill(os.getpid(), signal.SIGKILL)


async def churn(
    actor: EngineActor, plan: LaunchPlan, rng: random.Random, patience_s: float
) -> None:
    """Start and stop for ever, sometimes before the engine is ready."""
    while True:
        actor.start(plan)
        with anyio.move_on_after(rng.uniform(0.0, patience_s)):
            await actor.settled()
        await anyio.sleep(rng.uniform(0.0, 0.1))
        actor.stop("next")
        await actor.settled()


async def main() -> None:
    """Run until killed."""
    prefix, seed, directory = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    faults = Suicide(sys.argv[4] if len(sys.argv) > 4 else None)
    rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
    homes = [directory / name for name in "abc"]
    for home in homes:
        home.mkdir()
    a, b = Stage(prefix=f"{prefix}-a", faults=faults), Stage(prefix=f"{prefix}-b", faults=faults)
    c = Stage(prefix=f"{prefix}-c", faults=faults, probe=EngineProbe())
    stages = [
        (a, tiny(homes[0], load_s=0.05), 0.3),
        (b, tiny(homes[1], deaf=True, load_s=0.1), 3.0),
        (c, scripted(homes[2], load_s=0.2), 0.3),
    ]
    async with anyio.create_task_group() as tasks:
        for stage, plan, patience_s in stages:
            tasks.start_soon(stage.actor.run)
            tasks.start_soon(churn, stage.actor, plan, rng, patience_s)
        await until(lambda: all(stage.actor.revision > 0 for stage, _, _ in stages))
        sys.stdout.write("up\n")
        sys.stdout.flush()


if __name__ == "__main__":
    anyio.run(main)
