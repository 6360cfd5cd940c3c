from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mtpd.supervise.present import engine_view, residency_view
from mtpd.supervise.states import (
    Backoff,
    Cause,
    Engine,
    Failed,
    Halt,
    Launch,
    Loading,
    Probing,
    Ready,
    Releasing,
    Retry,
    Spawning,
    State,
    Stopped,
    Stopping,
    Wedged,
)
from mtpd.types import Evidence, FailureClass, TcpEndpoint, Verdict
from tests.fakes.supervision import KEY, tiny
from tuner.types import Evicted, Resident, Spilled

PLAN = tiny(Path("/run"))
CAUSE = Cause(failure=FailureClass.CRASH, reason="it crashed", hint="look", exit_code=139)
VERDICT = Verdict(residency=Resident(), evidence=(Evidence("line", "says"),), reason="all there")
RETRY = Retry(PLAN, CAUSE)
WAITING = Backoff(plan=PLAN, cause=CAUSE, attempt=2, until=12.5)

STATES: list[tuple[State, str, int | None, bool]] = [
    (Stopped(), "stopped", None, False),
    (Spawning(plan=PLAN), "spawning", None, False),
    (Loading(plan=PLAN, pid=7, began=0.0, heard=0.0), "loading", 7, False),
    (Probing(plan=PLAN, pid=7), "probing", 7, False),
    (Ready(plan=PLAN, pid=7, verdict=VERDICT, since=0.0), "ready", 7, False),
    (Stopping(plan=PLAN, pid=7, rung="term", then=Halt("x")), "stopping", 7, False),
    (Stopping(plan=PLAN, pid=7, rung="kill", then=RETRY), "stopping", 7, True),
    (Releasing(plan=PLAN, then=Launch(PLAN)), "releasing", None, False),
    (Releasing(plan=PLAN, then=WAITING), "releasing", None, True),
    (WAITING, "backoff", None, True),
    (Failed(plan=PLAN, cause=CAUSE), "failed", None, True),
    (Wedged(plan=PLAN, pid=7, then=Halt("x")), "wedged", 7, False),
]


@pytest.mark.parametrize(("state", "name", "pid", "failed"), STATES)
def test_every_state_is_shown_with_what_it_knows(
    *, state: State, name: str, pid: int | None, failed: bool
) -> None:
    view = engine_view(
        Engine(state=state), key=KEY, engine_id=None, since="now", now=10.0, log_tail=("a",)
    )
    assert (view.state, view.pid, view.failure is not None) == (name, pid, failed)
    assert (view.arm is None) == (name == "stopped")
    assert view.residency.state == ("resident" if name == "ready" else "unknown")
    if view.failure and name in {"backoff", "releasing"}:
        assert view.failure.retry_in_s == 2.5


def test_the_key_of_a_port_is_never_shown() -> None:
    endpoint = TcpEndpoint(host="127.0.0.1", port=8081, api_key="SECRET")
    state = Spawning(plan=replace(PLAN, endpoint=endpoint))
    view = engine_view(Engine(state=state), key=KEY, engine_id=None, since="", now=0.0, log_tail=())
    assert view.endpoint == "tcp:127.0.0.1:8081"
    assert "SECRET" not in repr(view)


def test_numbers_are_shown_only_where_they_are_known() -> None:
    evicted = residency_view(Verdict(residency=Evicted(3)))
    spilled = residency_view(Verdict(residency=Spilled(None)))
    assert (evicted.layers, evicted.spilled_bytes) == (3, None)
    assert (spilled.state, spilled.layers, spilled.spilled_bytes) == ("spilled", None, None)
