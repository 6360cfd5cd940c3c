"""What is told of an engine: its failures by class, each once on its way to the end."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mtpd.events import EngineTransition
from mtpd.supervise.herald import Herald
from mtpd.supervise.states import (
    Backoff,
    Blocked,
    Cause,
    Engine,
    Failed,
    Halt,
    Launch,
    Ready,
    Releasing,
    Retry,
    Spawning,
    Stopped,
    Stopping,
    Wedged,
)
from mtpd.types import EngineKey, FailureClass, Verdict
from mtpd.units import HOST
from tests.fakes.clock import FakeClock
from tests.fakes.supervision import tiny

if TYPE_CHECKING:
    from mtpd.events import Event
    from mtpd.supervise.states import State

PLAN = tiny(Path("/run"))
CRASH = Cause(failure=FailureClass.CRASH, reason="it ended")
HANG = Cause(failure=FailureClass.HANG, reason="it hangs")
KEPT = Cause(failure=FailureClass.VRAM_UNRECOVERED, reason="the memory is not back")
READY = Ready(plan=PLAN, pid=7, verdict=Verdict(), since=0.0)
WAITS = Backoff(plan=PLAN, cause=CRASH, attempt=1, until=1.0)
HANGS = Stopping(plan=PLAN, pid=7, rung="kill", then=Retry(PLAN, HANG))


def failures(*states: State) -> list[str]:
    told: list[Event] = []
    herald = Herald(
        key=EngineKey(device=HOST, profile="tiny"), clock=FakeClock(), on_event=told.append
    )
    engines = [Engine(state=one) for one in states]
    for before, after in pairwise(engines):
        herald.moved(before, after, None)
    moves = [one for one in told if isinstance(one, EngineTransition)]
    assert len(moves) == len(states) - 1
    return [one.failure for one in moves if one.failure is not None]


@pytest.mark.parametrize(
    ("states", "classes"),
    [
        ((READY, Releasing(plan=PLAN, then=WAITS), WAITS, Spawning(plan=PLAN)), ["crash"]),
        (
            (READY, Releasing(plan=PLAN, then=Launch(PLAN, CRASH)), Spawning(plan=PLAN)),
            ["crash"],
        ),
        ((READY, Releasing(plan=PLAN, then=Launch(PLAN)), Spawning(plan=PLAN)), []),
        (
            (
                READY,
                HANGS,
                Releasing(plan=PLAN, then=replace(WAITS, cause=replace(HANG, exit_code=137))),
                replace(WAITS, cause=HANG),
            ),
            ["hang"],
        ),
        (
            (
                READY,
                HANGS,
                Wedged(plan=PLAN, pid=7, then=HANGS.then),
                Releasing(plan=PLAN, then=replace(WAITS, cause=HANG)),
            ),
            ["hang", "wedged"],
        ),
        (
            (
                READY,
                Releasing(plan=PLAN, then=WAITS),
                Blocked(plan=PLAN, cause=KEPT),
                Stopped(),
            ),
            ["crash", "vram_unrecovered"],
        ),
        ((Spawning(plan=PLAN), Failed(plan=PLAN, cause=CRASH), Spawning(plan=PLAN)), ["crash"]),
        (
            (
                READY,
                Stopping(plan=PLAN, pid=7, rung="term", then=Halt("asked")),
                Releasing(plan=PLAN, then=Stopped()),
                Stopped(),
            ),
            [],
        ),
    ],
    ids=["crash", "at once", "ordered", "hang", "wedged", "kept", "failed", "stopped"],
)
def test_a_failure_is_told_once(states: tuple[State, ...], classes: list[str]) -> None:
    assert failures(*states) == classes
