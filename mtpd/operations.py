"""Long-running operations: one at a time, in order, each with a row, a view and an end.

Covers their states (queued, running, then done, failed or cancelled), progress,
cancellation and idempotency keys. What an operation does is the function it is started
with. One task (``run``) changes states; everyone else posts to it.
"""

from __future__ import annotations

import json
import uuid
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio
import structlog

from mtpd.actor import actor
from mtpd.clock import rfc3339
from mtpd.errors import ConflictError, MtpdError, StoreError, expected
from mtpd.events import OperationChanged
from mtpd.progress import ENDED, Live, Progress
from mtpd.views import OperationView, ProgressView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

    from mtpd.bus import Bus
    from mtpd.clock import Clock
    from mtpd.progress import Run
    from mtpd.store.operations_table import OperationRows
    from mtpd.views import Json

    Describe = Callable[[MtpdError | None], dict[str, Json]]

__all__ = ["ENDED", "Operations", "Progress"]

log = structlog.get_logger()

_STORE_S = 2.0
"""Bound on writing down an end, which a stopping daemon waits for."""


@dataclass(slots=True, eq=False)
class _Start:
    """A request to start, and its answer."""

    live: Live
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: OperationView | MtpdError | None = None


@dataclass(frozen=True, slots=True)
class _Cancel:
    """A request to end an operation that may still be queued."""

    live: Live


class Operations:
    """The lane of device operations and the memory of past ones.

    Args:
        rows: Where operations are stored.
        bus: Where their changes are told.
        clock: Dates them.
        describe: An error as an RFC 9457 problem; None is an unexpected one.
        progress_every_s: At most one progress event per operation in this time.
    """

    def __init__(
        self,
        *,
        rows: OperationRows,
        bus: Bus,
        clock: Clock,
        describe: Describe,
        progress_every_s: float = 0.25,
    ) -> None:
        self._rows, self._bus, self._clock = rows, bus, clock
        self._describe = describe
        self._progress_every_s = progress_every_s
        self._inbox: deque[_Start | _Cancel] = deque()
        self._posted = anyio.Event()
        self._stopped = False
        self._waiting: deque[Live] = deque()
        self._arrived = anyio.Event()
        self._live: dict[str, Live] = {}
        self._running: Live | None = None
        self._unsaved: dict[str, OperationView] = {}

    @property
    def current(self) -> OperationView | None:
        """The operation that runs, or None."""
        return None if self._running is None else self._running.view

    async def start(
        self,
        kind: str,
        params: Mapping[str, Json],
        run: Run,
        *,
        idempotency_key: str | None = None,
    ) -> OperationView:
        """Store an operation and queue it; returns once it is durable.

        Args:
            kind: switch, load, unload, tune, probe, sweep, perplexity, bench, recipe or reload.
            params: What was asked for.
            run: Does it; returns the result. Cancelled by raising out of it: what must
                still be done then, it shields itself.
            idempotency_key: A second start with the same key returns the first operation.

        Raises:
            ConflictError: The key belongs to an operation with another kind or params.
            StoreError: The row could not be stored; nothing was started.
        """
        view = OperationView(
            id=str(uuid.uuid4()),
            kind=kind,
            state="queued",
            params=dict(params),
            progress=ProgressView(done=0, total=None, note=""),
            created_at=self._now(),
            started_at=None,
            ended_at=None,
            result=None,
            error=None,
            actor=actor(),
        )
        request = _Start(Live(view=view, run=run, key=idempotency_key))
        # Posted, not done here: a client that leaves meanwhile cancels this task, and a row
        # that is stored must be queued too.
        self._post(request)
        await request.answered.wait()
        match request.answer:
            case OperationView() as answer:
                return answer
            case MtpdError() as problem:
                raise problem
            case None:
                raise _stopping()

    async def list(self, *, limit: int | None = None) -> tuple[OperationView, ...]:
        """The newest operations, in the order they were created."""
        stored = await self._rows.list(limit=limit)
        return tuple(self._fresh(view) for view in stored)

    async def get(self, operation_id: str) -> OperationView | None:
        """One operation, or None."""
        live = self._live.get(operation_id)
        if live is not None:
            return live.view
        stored = await self._rows.get(operation_id)
        return None if stored is None else self._fresh(stored)

    async def cancel(self, operation_id: str) -> OperationView | None:
        """Ask an operation to end and show it; None if there is none such.

        A queued one has ended when this returns, a running one ends once it has cleaned
        up (``ended`` waits for it), and one that has ended stays as it is.
        """
        live = self._live.get(operation_id)
        if live is None:
            return await self.get(operation_id)
        live.stop(f"cancelled by {actor() or 'request'}")
        if live in self._waiting:
            self._post(_Cancel(live))
            await live.ended.wait()
        return live.view

    def abort(self, kinds: AbstractSet[str], reason: str) -> None:
        """Ask the operation that runs to end, if it is of one of these kinds.

        What waits is left alone: it has begun nothing that could be spoilt.
        """
        if self._running is not None and self._running.view.kind in kinds:
            self._running.stop(f"aborted, because {reason}")

    async def ended(self, operation_id: str) -> OperationView | None:
        """Wait until an operation has ended and show it; None if there is none such."""
        live = self._live.get(operation_id)
        if live is None:
            return await self.get(operation_id)
        await live.ended.wait()
        return live.view

    async def run(self) -> None:
        """Own the lane until cancelled; what is unfinished then becomes cancelled."""
        try:
            await self._fail_interrupted()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._accept)
                tasks.start_soon(self._work)
        finally:
            self._stopped = True
            for live in tuple(self._live.values()):
                await self._end(live, "cancelled")
            for item in self._inbox:
                if isinstance(item, _Start):
                    item.answered.set()

    async def _fail_interrupted(self) -> None:
        """End what an earlier daemon left unfinished: nothing of it runs any more."""
        try:
            left = await self._rows.unfinished()
            failed = tuple(self._interrupted(view) for view in left)
            await self._rows.update(*failed)
        except StoreError as problem:
            log.warning("operations.interrupted_unknown", reason=str(problem))
            return
        for view in failed:
            self._bus.publish(OperationChanged(operation=view))

    def _interrupted(self, view: OperationView) -> OperationView:
        when = "while it ran" if view.state == "running" else "before it ran"
        problem = MtpdError(f"the daemon ended {when}", hint="start the operation again")
        return replace(view, state="failed", ended_at=self._now(), error=self._describe(problem))

    def _post(self, item: _Start | _Cancel) -> None:
        if self._stopped:
            raise _stopping()
        self._inbox.append(item)
        self._posted.set()

    async def _accept(self) -> None:
        while True:
            while self._inbox:
                match self._inbox.popleft():
                    case _Start() as request:
                        await self._admit(request)
                    case _Cancel(live):
                        await self._drop(live)
            self._posted = anyio.Event()
            await self._posted.wait()

    async def _admit(self, request: _Start) -> None:
        try:
            stored = await self._rows.insert(request.live.view, key=request.live.key)
            request.answer = self._accepted(request.live, stored)
        except (StoreError, ConflictError) as problem:
            request.answer = problem
        finally:
            request.answered.set()

    async def _drop(self, live: Live) -> None:
        """End an operation that waits; one that runs is ended by its scope."""
        if live in self._waiting:
            self._waiting.remove(live)
            await self._end(live, "cancelled")

    def _accepted(self, live: Live, stored: OperationView) -> OperationView:
        """Queue a new operation; show the earlier one that has the same key otherwise."""
        if stored.id == live.view.id:
            self._live[stored.id] = live
            self._waiting.append(live)
            self._arrived.set()
            self._tell(live)
        elif (stored.kind, stored.params) != (live.view.kind, live.view.params):
            msg = f"the idempotency key belongs to another operation, {stored.kind} {stored.id}"
            raise ConflictError(msg, hint="use a new key for a new request")
        return self._fresh(stored)

    async def _work(self) -> None:
        while True:
            while self._waiting:
                await self._perform(self._waiting.popleft())
            self._arrived = anyio.Event()
            await self._arrived.wait()

    async def _perform(self, live: Live) -> None:
        self._running = live
        try:
            live.view = replace(live.view, state="running", started_at=self._now())
            await self._store(live.view)
            self._tell(live)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._tell_progress, live)
                state, value = await self._outcome(live)
                tasks.cancel_scope.cancel()
            await self._end(live, state, value)
        finally:
            self._running = None

    async def _outcome(self, live: Live) -> tuple[str, dict[str, Json] | None]:
        """Run an operation to its end: the state it ends in, with its result or its problem."""
        if live.scope.cancel_called:
            return "cancelled", None
        try:
            with live.scope:
                result = await live.run(Progress(live))
                # A result that is no JSON is a defect of the operation, not of the store.
                json.dumps(result, allow_nan=False)
                return "done", result
        except Exception as error:
            # The fourth place that catches everything: a defect in one operation ends it,
            # not the daemon.
            problem = expected(error)
            if problem is None:
                log.exception("operation.crashed", operation=live.view.id, kind=live.view.kind)
            return "failed", self._describe(problem)
        return "cancelled", None

    async def _tell_progress(self, live: Live) -> None:
        while True:
            await live.stale.wait()
            live.stale = anyio.Event()
            self._tell(live)
            await anyio.sleep(self._progress_every_s)

    async def _end(self, live: Live, state: str, value: dict[str, Json] | None = None) -> None:
        """Store, tell and forget an operation that ended."""
        # A daemon that is interrupted right here comes by again and must not change the end.
        if live.view.state not in ENDED:
            now = live.view.progress
            progress = now.cancelled(live.stopped) if state == "cancelled" else now
            live.view = replace(
                live.view,
                state=state,
                progress=progress,
                ended_at=self._now(),
                result=value if state == "done" else None,
                error=value if state == "failed" else None,
            )
        with anyio.move_on_after(_STORE_S, shield=True):
            await self._store(live.view)
        self._tell(live)
        del self._live[live.view.id]
        live.ended.set()

    async def _store(self, view: OperationView) -> None:
        """Store a view; while the disk refuses, it is kept in memory and tried again."""
        self._unsaved[view.id] = view
        views = tuple(self._unsaved.values())
        try:
            await self._rows.update(*views)
        except StoreError as problem:
            log.warning("operation.not_stored", operation=view.id, reason=str(problem))
            return
        for stored in views:
            if self._unsaved.get(stored.id) is stored:
                del self._unsaved[stored.id]

    def _tell(self, live: Live) -> None:
        changed = OperationChanged(operation=live.view)
        live.cause = self._bus.publish(changed, cause=live.cause).seq

    def _fresh(self, stored: OperationView) -> OperationView:
        """The newest view of a stored operation."""
        live = self._live.get(stored.id)
        return self._unsaved.get(stored.id, stored) if live is None else live.view

    def _now(self) -> str:
        return rfc3339(self._clock.utc())


def _stopping() -> ConflictError:
    return ConflictError("the daemon is stopping", hint="try again once it has started")
