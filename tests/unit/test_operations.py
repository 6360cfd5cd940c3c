"""Operations: the lane, cancelling, progress, idempotency, failures, restarts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import pytest
from structlog.testing import capture_logs

from mtpd.actor import acting_as
from mtpd.errors import ConflictError, EngineError, StoreError
from mtpd.events import Envelope, OperationChanged
from mtpd.operations import ENDED, Operations
from mtpd.store.db import Database
from mtpd.store.operations_table import OperationRows
from mtpd.units import Seq
from mtpd.views import ProgressView
from tests.fakes.clock import FakeClock
from tests.fakes.operations import Lane, describe, lane
from tests.fakes.values import operation_view

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.operations import Progress
    from mtpd.views import Json, OperationView


class Work:
    """A run that says when it began and goes on when told."""

    def __init__(self) -> None:
        self.began = anyio.Event()
        self.go = anyio.Event()
        self.cleaned = False

    async def __call__(self, progress: Progress) -> dict[str, Json]:
        del progress
        self.began.set()
        try:
            await self.go.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                self.cleaned = True
        return {"depth": 2}


async def _at_once(progress: Progress) -> dict[str, Json]:
    return {"id": progress.operation_id}


async def test_what_is_aborted_says_why_and_only_what_runs_and_is_of_its_kind_is(
    tmp_path: Path,
) -> None:
    async with lane(tmp_path / "db") as on:
        first, second = Work(), Work()
        tune = await on.operations.start("tune", {}, first)
        sweep = await on.operations.start("sweep", {}, second)
        with anyio.fail_after(10):
            await first.began.wait()
        on.operations.abort({"sweep"}, "it slept")
        on.operations.abort({"tune"}, "it slept")
        on.operations.abort({"tune"}, "it slept again")
        ended = await _ended(on, tune)
        assert (ended.state, ended.progress.note) == ("cancelled", "aborted, because it slept")
        assert first.cleaned
        with anyio.fail_after(10):
            await second.began.wait()
        second.go.set()
        assert (await _ended(on, sweep)).state == "done"


async def _ended(lane: Lane, view: OperationView) -> OperationView:
    with anyio.fail_after(10):
        ended = await lane.operations.ended(view.id)
    assert ended is not None
    assert await lane.rows.get(view.id) == ended
    assert await lane.operations.get(view.id) == ended
    return ended


async def test_an_operation_is_queued_runs_and_is_done(tmp_path: Path) -> None:
    async with lane(tmp_path / "db") as on:
        view = await on.operations.start("probe", {"model": "tiny"}, _at_once)
        assert (view.kind, view.state, view.params) == ("probe", "queued", {"model": "tiny"})
        ended = await _ended(on, view)

        assert (ended.state, ended.result, ended.error) == ("done", {"id": view.id}, None)
        assert ended.started_at is not None
        assert [one.state for one in await on.told()] == ["queued", "running", "done"]


async def test_operations_run_one_at_a_time_in_order(tmp_path: Path) -> None:
    running = Counter[str]()
    order: list[int] = []

    async with lane(tmp_path / "db") as on:

        def numbered(number: int) -> Work:
            class Numbered(Work):
                async def __call__(self, progress: Progress) -> dict[str, Json]:
                    running["now"] += 1
                    assert running["now"] == 1
                    order.append(number)
                    await anyio.lowlevel.checkpoint()
                    running["now"] -= 1
                    return await _at_once(progress)

            return Numbered()

        views = [await on.operations.start("tune", {}, numbered(n)) for n in range(5)]
        for view in views:
            await _ended(on, view)
        assert [view.id for view in await on.operations.list()] == [view.id for view in views]
        assert [view.id for view in await on.operations.list(limit=2)] == [
            view.id for view in views[-2:]
        ]
    assert order == [0, 1, 2, 3, 4]


async def test_who_starts_and_who_cancels_an_operation_is_kept_in_its_row(tmp_path: Path) -> None:
    first, second = Work(), Work()
    async with lane(tmp_path / "db") as on:
        await on.operations.start("tune", {}, first)
        await first.began.wait()
        with acting_as("token ops"):
            queued = await on.operations.start("tune", {}, second)
        with acting_as("uid 7 over the control socket"):
            await on.operations.cancel(queued.id)
        with acting_as("token late"):
            await on.operations.cancel(queued.id)
        (_, stored) = await on.operations.list()
        assert stored.actor == "token ops"
        assert stored.progress.note == "cancelled by uid 7 over the control socket"
        first.go.set()


async def test_a_queued_operation_that_is_cancelled_never_runs(tmp_path: Path) -> None:
    first, second = Work(), Work()
    async with lane(tmp_path / "db") as on:
        running = await on.operations.start("tune", {}, first)
        queued = await on.operations.start("tune", {}, second)
        await first.began.wait()

        cancelled = await on.operations.cancel(queued.id)
        assert cancelled is not None
        assert (cancelled.state, cancelled.started_at) == ("cancelled", None)
        assert cancelled.progress.note == "cancelled by request"
        assert cancelled.actor is None
        assert on.operations.current is not None
        assert on.operations.current.id == running.id
        first.go.set()
        assert (await _ended(on, running)).state == "done"
    assert not second.began.is_set()


async def test_a_running_operation_that_is_cancelled_cleans_up_and_frees_the_lane(
    tmp_path: Path,
) -> None:
    work = Work()
    async with lane(tmp_path / "db") as on:
        view = await on.operations.start("tune", {}, work)
        await work.began.wait()
        await on.operations.cancel(view.id)
        ended = await _ended(on, view)
        assert (ended.state, ended.result, ended.error) == ("cancelled", None, None)
        assert work.cleaned

        after = await on.operations.start("tune", {}, _at_once)
        assert (await _ended(on, after)).state == "done"


async def test_cancelling_twice_or_too_late_changes_nothing(tmp_path: Path) -> None:
    async with lane(tmp_path / "db") as on:
        view = await on.operations.start("tune", {}, _at_once)
        ended = await _ended(on, view)
        assert await on.operations.cancel(view.id) == ended
        assert await on.operations.cancel("unknown") is None
        assert await on.operations.ended("unknown") is None
        assert await on.operations.get("unknown") is None


async def test_an_error_with_advice_becomes_the_problem_of_the_operation(tmp_path: Path) -> None:
    async def fails(progress: Progress) -> dict[str, Json]:
        del progress
        raise EngineError("the engine died", failure="crash", hint="see the log")

    async with lane(tmp_path / "db") as on:
        ended = await _ended(on, await on.operations.start("switch", {}, fails))
    assert ended.state == "failed"
    assert ended.error == {
        "type": "EngineError",
        "detail": "the engine died",
        "hint": "see the log",
    }


async def test_an_error_out_of_a_task_group_is_unwrapped(tmp_path: Path) -> None:
    async def inner() -> None:
        raise StoreError("the disk is full")

    async def fails(progress: Progress) -> dict[str, Json]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(inner)
        return await _at_once(progress)

    async with lane(tmp_path / "db") as on:
        ended = await _ended(on, await on.operations.start("switch", {}, fails))
    assert ended.error is not None
    assert ended.error["detail"] == "the disk is full"


@pytest.mark.parametrize("result", [None, {"gain": float("nan")}, {"what": object()}])
async def test_a_defect_ends_its_operation_but_not_the_lane(tmp_path: Path, result: object) -> None:
    async def broken(progress: Progress) -> dict[str, Json]:
        del progress
        if isinstance(result, dict):
            return result
        raise ZeroDivisionError

    async with lane(tmp_path / "db") as on:
        with capture_logs() as logs:
            ended = await _ended(on, await on.operations.start("tune", {}, broken))
        assert (ended.state, ended.result) == ("failed", None)
        assert ended.error is not None
        assert ended.error["type"] == "internal"
        (crash,) = [entry for entry in logs if entry["event"] == "operation.crashed"]
        assert crash["exc_info"]
        assert (await _ended(on, await on.operations.start("tune", {}, _at_once))).state == "done"


async def test_the_same_key_returns_the_same_operation(tmp_path: Path) -> None:
    work = Work()
    async with lane(tmp_path / "db") as on:
        first = await on.operations.start("tune", {"n": 1}, work, idempotency_key="k")
        await work.began.wait()
        again = await on.operations.start("tune", {"n": 1}, _at_once, idempotency_key="k")
        assert (again.id, again.state) == (first.id, "running")
        work.go.set()
        ended = await _ended(on, first)
        assert await on.operations.start("tune", {"n": 1}, _at_once, idempotency_key="k") == ended
        other = await on.operations.start("tune", {"n": 1}, _at_once, idempotency_key="l")
        assert other.id != first.id

    async with lane(tmp_path / "db") as on:
        assert await on.operations.start("tune", {"n": 1}, _at_once, idempotency_key="k") == ended


async def test_a_key_of_another_request_is_refused(tmp_path: Path) -> None:
    async with lane(tmp_path / "db") as on:
        await on.operations.start("tune", {"n": 1}, _at_once, idempotency_key="k")
        with pytest.raises(ConflictError, match="idempotency key"):
            await on.operations.start("tune", {"n": 2}, _at_once, idempotency_key="k")
        with pytest.raises(ConflictError, match="idempotency key"):
            await on.operations.start("probe", {"n": 1}, _at_once, idempotency_key="k")
        assert len(await on.operations.list()) == 1


async def test_progress_is_seen_at_once_and_told_seldom(tmp_path: Path) -> None:
    reported, go = anyio.Event(), anyio.Event()

    async def counts(progress: Progress) -> dict[str, Json]:
        for number in range(1, 101):
            progress.report(number, 100, f"cell {number}")
            await anyio.lowlevel.checkpoint()
        reported.set()
        await go.wait()
        return {}

    async with lane(tmp_path / "db", progress_every_s=3600.0) as on:
        view = await on.operations.start("sweep", {}, counts)
        await reported.wait()
        current = on.operations.current
        assert current is not None
        assert current.progress == ProgressView(done=100, total=100, note="cell 100")
        go.set()
        ended = await _ended(on, view)
        assert ended.progress.done == 100
        assert [one.state for one in await on.told()] == ["queued", "running", "running", "done"]


async def test_the_last_of_many_reports_is_told_without_another(tmp_path: Path) -> None:
    work = Work()

    async def counts(progress: Progress) -> dict[str, Json]:
        for number in range(10):
            progress.report(number, None, "")
        return await work(progress)

    async with lane(tmp_path / "db", progress_every_s=0.01) as on:
        await on.operations.start("sweep", {}, counts)
        with anyio.fail_after(10):
            async with on.bus.subscribe(Seq(0)) as reader:
                async for item in reader:
                    assert isinstance(item, Envelope)
                    assert isinstance(item.event, OperationChanged)
                    if item.event.operation.progress.done == 9:
                        break
        work.go.set()


async def test_a_report_after_the_end_is_ignored(tmp_path: Path) -> None:
    kept: list[Progress] = []

    async def keeps(progress: Progress) -> dict[str, Json]:
        kept.append(progress)
        return {}

    async with lane(tmp_path / "db") as on:
        ended = await _ended(on, await on.operations.start("tune", {}, keeps))
        kept[0].report(5, 5, "late")
        assert await on.operations.get(ended.id) == ended


async def test_events_of_an_operation_name_the_one_before_as_their_cause(tmp_path: Path) -> None:
    causes: list[int | None] = []

    async def looks(progress: Progress) -> dict[str, Json]:
        causes.append(progress.cause)
        return {}

    async with lane(tmp_path / "db") as on:
        await _ended(on, await on.operations.start("tune", {}, looks))
        async with on.bus.subscribe(Seq(0)) as reader:
            on.bus.close()
            chain = [item.cause async for item in reader if isinstance(item, Envelope)]
    assert chain == [None, 1, 2]
    assert causes == [2]


async def test_what_an_ended_daemon_left_is_failed_with_when(tmp_path: Path) -> None:
    async with await Database.open(tmp_path / "db", FakeClock()) as db:
        rows = OperationRows(db=db)
        await rows.insert(operation_view(id="waiting"), key=None)
        await rows.insert(operation_view(id="running"), key=None)
        at = "2026-11-29T12:00:00.000Z"
        await rows.update(operation_view(id="running", state="running", started_at=at))

    async with lane(tmp_path / "db") as on:
        await _ended(on, await on.operations.start("tune", {}, _at_once))
        waiting, running, _ = await on.operations.list()
        assert [one.id for one in (await on.told())[:2]] == ["waiting", "running"]
    assert (waiting.state, running.state) == ("failed", "failed")
    assert waiting.error is not None
    assert waiting.error["detail"] == "the daemon ended before it ran"
    assert running.error is not None
    assert running.error["detail"] == "the daemon ended while it ran"


async def test_a_stopping_daemon_cancels_what_runs_and_what_waits(tmp_path: Path) -> None:
    work = Work()
    async with lane(tmp_path / "db") as on:
        views = [await on.operations.start("tune", {}, work) for _ in range(3)]
        await work.began.wait()

    assert work.cleaned
    async with lane(tmp_path / "db") as on:
        stored = await on.operations.list()
    assert [one.id for one in stored] == [view.id for view in views]
    assert [one.state for one in stored] == ["cancelled"] * 3
    assert {one.progress.note.split(";")[0] for one in stored} == {"the daemon stopped"}
    assert stored[0].started_at is not None


async def test_a_start_after_the_end_is_refused(tmp_path: Path) -> None:
    async with lane(tmp_path / "db") as on:
        await on.operations.list()
    with pytest.raises(ConflictError, match="stopping"):
        await on.operations.start("tune", {}, _at_once)


async def test_a_start_that_meets_the_end_is_answered(tmp_path: Path) -> None:
    async with lane(tmp_path / "db") as on:
        idle = Operations(
            rows=on.rows, bus=on.bus, clock=FakeClock(), describe=describe, progress_every_s=0
        )
        refused: list[str] = []

        async def starts() -> None:
            with pytest.raises(ConflictError) as caught:
                await idle.start("tune", {}, _at_once)
            refused.append(str(caught.value))

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(starts)
                await anyio.wait_all_tasks_blocked()
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await idle.run()
    assert refused == ["the daemon is stopping"]


async def test_a_starter_that_leaves_does_not_strand_its_operation(tmp_path: Path) -> None:
    work = Work()
    async with lane(tmp_path / "db") as on:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(on.operations.start, "tune", {}, work)
            # Post the request, then leave before it is answered.
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        work.go.set()
        with anyio.fail_after(10):
            await work.began.wait()
            (view,) = await on.operations.list()
            assert (await _ended(on, view)).state == "done"


async def test_a_full_disk_refuses_a_start_and_keeps_the_end_of_what_runs(
    tmp_path: Path,
) -> None:
    work = Work()
    async with lane(tmp_path / "db") as on:
        view = await on.operations.start("tune", {}, work)
        await work.began.wait()
        await on.db.read(lambda conn: conn.execute("PRAGMA query_only = ON"))
        with pytest.raises(StoreError):
            await on.operations.start("tune", {}, _at_once)
        work.go.set()
        with anyio.fail_after(10):
            ended = await on.operations.ended(view.id)
        assert ended is not None
        assert ended.state == "done"
        assert await on.operations.get(view.id) == ended
        assert await on.operations.list() == (ended,)
        stored = await on.rows.get(view.id)
        assert stored is not None
        assert stored == replace(ended, state="running", ended_at=None, result=None)

        await on.db.read(lambda conn: conn.execute("PRAGMA query_only = OFF"))
        await _ended(on, await on.operations.start("tune", {}, _at_once))
        assert await on.rows.get(view.id) == ended
    assert ended.state in ENDED
