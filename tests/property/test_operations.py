"""Any interleaving of starting, finishing, failing and cancelling keeps the lane's promises."""

from __future__ import annotations

import asyncio
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.errors import EngineError
from mtpd.operations import ENDED
from tests.fakes.operations import Lane, lane

if TYPE_CHECKING:
    from mtpd.operations import Progress
    from mtpd.views import Json

NEXT = {
    "queued": {"running", "cancelled"},
    "running": {"running", "done", "failed", "cancelled"},
}
STEPS = st.one_of(
    st.tuples(st.just("start"), st.none() | st.integers(0, 2)),
    st.tuples(st.sampled_from(["finish", "fail", "crash", "cancel"]), st.integers(0, 7)),
    st.tuples(st.just("settle"), st.none()),
)
Step = tuple[str, int | None]


class Runs:
    """The runs of one example, each ended from outside."""

    def __init__(self) -> None:
        self.going: dict[str, anyio.Event] = {}
        self.how: dict[str, str] = {}
        self.most = 0

    async def run(self, progress: Progress) -> dict[str, Json]:
        name = progress.operation_id
        event = self.going[name] = anyio.Event()
        self.most = max(self.most, len(self.going))
        try:
            progress.report(1, None, "")
            await event.wait()
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
        finally:
            del self.going[name]
        if self.how[name] == "fail":
            raise EngineError("died", failure="crash")
        if self.how[name] == "crash":
            raise ZeroDivisionError
        return {"how": "finish"}


async def _step(on: Lane, runs: Runs, ids: list[str], step: Step) -> None:
    kind, number = step
    if kind == "settle":
        await anyio.wait_all_tasks_blocked()
    elif kind == "start":
        key = None if number is None else f"key-{number}"
        view = await on.operations.start("tune", {}, runs.run, idempotency_key=key)
        if view.id not in ids:
            ids.append(view.id)
    elif ids:
        name = ids[(number or 0) % len(ids)]
        if kind == "cancel":
            await on.operations.cancel(name)
        elif name in runs.going:
            runs.how[name] = kind
            runs.going[name].set()


async def _interleave(path: Path, steps: list[Step], *, finish: bool) -> None:
    runs, ids = Runs(), list[str]()
    async with lane(path) as on:
        for step in steps:
            await _step(on, runs, ids, step)
        if finish:
            with anyio.fail_after(20):
                for name in ids:
                    await on.operations.cancel(name)
                    await on.operations.ended(name)
        bus = on
    assert runs.most <= 1
    assert not runs.going
    told: dict[str, list[str]] = {name: [] for name in ids}
    for view in await bus.told():
        told[view.id].append(view.state)
    for states in told.values():
        assert states[0] == "queued"
        assert all(new in NEXT[old] for old, new in pairwise(states))
        assert states[-1] in ENDED
    async with lane(path) as on:
        stored = await on.operations.list()
        assert [view.id for view in stored] == ids
        assert [view.state for view in stored] == [told[name][-1] for name in ids]
        started = [view for view in stored if view.started_at is not None]
        assert all(view.state in ENDED for view in started)


@settings(max_examples=60)
@given(steps=st.lists(STEPS, max_size=25), finish=st.booleans())
def test_one_runs_at_most_and_each_ends_exactly_once(steps: list[Step], *, finish: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_interleave(Path(folder) / "db", steps, finish=finish))
