"""A scripted daemon behind the control API, and real servers in front of it."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import anyio
from aiohttp import web

from mtpd.api.auth import Policy
from mtpd.api.routes import mount
from mtpd.bus import Bus
from mtpd.engine.told import KEPT
from mtpd.errors import (
    ConfigError,
    ConflictError,
    InvalidError,
    MtpdError,
    NotFoundError,
    UnknownNameError,
)
from mtpd.events import OperationChanged
from mtpd.live_views import LiveView
from mtpd.logfeed import LogFeed
from mtpd.units import Seq
from mtpd.views import OperationView, ProgressView, encode
from tests.fakes import devices, study, views
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from aiohttp.typedefs import Handler

    from mtpd.api.filters import Position
    from mtpd.api.routes import Route
    from mtpd.api.sse import StreamSettings
    from mtpd.bus import SubscriberDropped
    from mtpd.events import Envelope, Event
    from mtpd.explanation_views import ExplanationView
    from mtpd.gpu.views import DeviceView
    from mtpd.history_views import HistoryView
    from mtpd.quality_views import BaselineView, PerplexityView, PplComparisonView, RecipeView
    from mtpd.report_views import ReportView
    from mtpd.views import (
        ConfigValueView,
        DecisionView,
        Json,
        MeasurementView,
        ModelView,
        QuarantineView,
        StatusView,
    )

AT = "2026-11-29T22:50:00.000Z"
STEPS = 3
ENDED = {"done", "failed", "cancelled"}
ENGINE: dict[str, Json] = {"decision": 18, "engine": encode(views.engine())}


def measured(subject: str, method: str) -> dict[str, Json]:
    """The result of a tune, sweep or probe."""
    return {
        "subject": subject,
        "method": method,
        "applied": method != "probe",
        "decisions": [encode(views.decision())],
        "depths": [encode(row) for row in views.depth_rows()],
    }


class ScriptedBackend:
    """Answers from ``tests.fakes.views``; runs operations in three steps.

    Attributes:
        calls: What it was asked to do, in order: method and arguments.
        held: Kinds of operation that stay at their first step until cancelled.
        failing: Kinds of operation that fail at the end.
        queued: Kinds of operation that wait behind another one for ever.
        broken: Raised by ``status``, when set.
        refused: What is wrong with the configuration on the disk.
    """

    def __init__(self, *, boot: str = "b1", keep: int = 1024, queue: int = 256) -> None:
        self.bus = Bus(boot=boot, clock=FakeClock(), keep=keep, queue=queue)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.held: set[str] = set()
        self.failing: set[str] = set()
        self.queued: set[str] = set()
        self.broken: Exception | None = None
        self.refused: tuple[str, ...] = ()
        self.view = views.status()
        self.lines = LogFeed(clock=FakeClock(), marked=KEPT)
        self._operations: dict[str, OperationView] = {}
        self._results: dict[str, dict[str, Json]] = {}
        self._keys: dict[str, OperationView] = {}

    async def status(self) -> StatusView:
        if self.broken is not None:
            raise self.broken
        return self.view

    async def gpu(self) -> tuple[DeviceView, ...]:
        return (devices.card(),)

    def history(
        self, metrics: AbstractSet[str] | None, /, *, since_s: float, step_s: float
    ) -> HistoryView:
        asked = None if metrics is None else sorted(metrics)
        self.calls.append(("history", {"metrics": asked, "since_s": since_s, "step_s": step_s}))
        return devices.history(metrics)

    def live(self) -> LiveView:
        return LiveView(mode="idle", profiles=(views.live(),))

    async def models(self) -> tuple[ModelView, ...]:
        return (views.model(), views.unmeasured_model())

    async def model(self, name: str) -> ModelView | None:
        return next((m for m in await self.models() if name in (m.id, *m.aliases)), None)

    async def switch(
        self,
        *,
        model: str,
        depth: int | None,
        force: bool,
        idempotency_key: str | None,
        measured: bool = False,
    ) -> OperationView:
        found = await self._need(model)
        if depth is not None and depth > found.max_depth:
            message = f"{found.id} drafts at most {found.max_depth} tokens, not {depth}."
            raise InvalidError(message, hint="mtpctl models shows what a model can do.")
        params: dict[str, Json] = {"model": model, "depth": depth, "force": force}
        if measured:
            params["measured"] = True
        return self._start("switch", params, idempotency_key, ENGINE)

    def quarantine(self) -> tuple[QuarantineView, ...]:
        return (views.quarantined(),)

    async def release(self, quarantined_id: str, /) -> QuarantineView:
        self.calls.append(("release", {"id": quarantined_id}))
        if quarantined_id != views.quarantined().id:
            message = f"no request {quarantined_id!r} is quarantined"
            raise NotFoundError(message, hint="mtpctl quarantine list shows them")
        return views.quarantined()

    async def load(self, *, model: str, idempotency_key: str | None) -> OperationView:
        await self._need(model)
        return self._start("load", {"model": model}, idempotency_key, ENGINE)

    async def unload(self, *, model: str | None, idempotency_key: str | None) -> OperationView:
        if model is not None:
            await self._need(model)
        return self._start("unload", {"model": model}, idempotency_key, {"engines": []})

    async def tune(
        self,
        *,
        subject: str,
        method: str,
        depths: tuple[int, ...] | None,
        workloads: tuple[str, ...] | None,
        prompts: int | None,
        repetitions: int | None,
        max_tokens: int | None,
        apply: bool,
        idempotency_key: str | None,
        max_starts: int | None = None,
        max_cells: int | None = None,
        max_minutes: float | None = None,
        max_joules: float | None = None,
    ) -> OperationView:
        params: dict[str, Json] = {
            "subject": subject,
            "method": method,
            "depths": None if depths is None else list(depths),
            "workloads": None if workloads is None else list(workloads),
            "prompts": prompts,
            "repetitions": repetitions,
            "max_tokens": max_tokens,
            "max_starts": max_starts,
            "max_cells": max_cells,
            "max_minutes": max_minutes,
            "max_joules": max_joules,
            "apply": apply,
        }
        return self._start("tune", params, idempotency_key, measured(subject, method))

    async def probe(self, *, model: str, depth: int, idempotency_key: str | None) -> OperationView:
        await self._need(model)
        params: dict[str, Json] = {"model": model, "depth": depth}
        return self._start("probe", params, idempotency_key, measured(model, "probe"))

    async def perplexity(
        self,
        *,
        models: tuple[str, ...],
        corpus: str,
        chunks: int,
        context: int,
        idempotency_key: str | None,
    ) -> OperationView:
        params: dict[str, Json] = {
            "models": list(models),
            "corpus": corpus,
            "chunks": chunks,
            "context": context,
        }
        pair = views.comparison()
        rows = (pair.base, pair.variant)[: len(models)]
        result: dict[str, Json] = {
            "rows": [encode(row) for row in rows],
            "comparison": encode(pair) if len(models) > 1 else None,
        }
        return self._start("perplexity", params, idempotency_key, result)

    async def bench(
        self,
        *,
        model: str,
        prompt_tokens: int,
        gen_tokens: int,
        repetitions: int,
        idempotency_key: str | None,
    ) -> OperationView:
        await self._need(model)
        params: dict[str, Json] = {
            "model": model,
            "prompt_tokens": prompt_tokens,
            "gen_tokens": gen_tokens,
            "repetitions": repetitions,
        }
        result: dict[str, Json] = {"baseline": encode(views.baseline())}
        return self._start("bench", params, idempotency_key, result)

    async def recipe_b2(self, model: str, /) -> RecipeView:
        await self._need(model)
        return views.recipe()

    async def make_b2(
        self,
        *,
        model: str,
        corpus: str | None,
        chunks: int,
        context: int,
        idempotency_key: str | None,
    ) -> OperationView:
        await self._need(model)
        params: dict[str, Json] = {
            "model": model,
            "corpus": corpus,
            "chunks": chunks,
            "context": context,
        }
        result: dict[str, Json] = {"recipe": encode(views.recipe())}
        if corpus is not None:
            pair = views.comparison()
            result["rows"] = [encode(pair.base), encode(pair.variant)]
            result["comparison"] = encode(pair)
        return self._start("recipe", params, idempotency_key, result)

    async def perplexities(self, *, model: str | None, limit: int) -> tuple[PerplexityView, ...]:
        pair = views.comparison()
        found = [pair.variant, pair.base]
        return tuple(one for one in found if model in (None, one.model))[:limit]

    async def baselines(self, *, model: str | None, limit: int) -> tuple[BaselineView, ...]:
        return (views.baseline(),)[:limit]

    async def comparison(self, base: str, variant: str, /) -> PplComparisonView:
        if variant == "other-chunks":
            message = "they must not be compared (chunks): one was measured over 16, the other 32"
            raise InvalidError(message, hint="mtpctl ppl A B --corpus FILE measures both alike")
        return views.comparison()

    async def reload(self, *, idempotency_key: str | None) -> OperationView:
        if self.refused:
            raise ConfigError(self.refused, hint="every key is explained in docs/configuration.md")
        return self._start("reload", {}, idempotency_key, views.reloaded())

    async def operations(self, limit: int) -> tuple[OperationView, ...]:
        return tuple(reversed(self._operations.values()))[:limit]

    async def operation(self, operation_id: str, /) -> OperationView | None:
        return self._operations.get(operation_id)

    async def cancel(self, operation_id: str, /) -> OperationView | None:
        found = self._operations.get(operation_id)
        if found is None or found.state in ENDED:
            return found
        return self._move(found, state="cancelled", ended_at=AT)

    async def measurements(
        self,
        *,
        model: str | None,
        depth: int | None,
        workload: str | None,
        operation_id: str | None,
        ids: tuple[int, ...] | None,
        limit: int,
    ) -> tuple[MeasurementView, ...]:
        asked = {"model": model, "depth": depth, "workload": workload}
        self.calls.append(
            ("measurements", {**asked, "operation_id": operation_id, "ids": ids, "limit": limit})
        )
        found = [views.measurement(number) for number in ids or (3, 2, 1)]
        return tuple(found[:limit])

    async def decisions(self, *, subject: str | None, limit: int) -> tuple[DecisionView, ...]:
        found = [views.decision(number) for number in (17, 16)]
        return tuple(d for d in found if subject in (None, d.subject))[:limit]

    async def decision(self, decision_id: int, /) -> DecisionView | None:
        return views.decision(decision_id) if decision_id in {16, 17} else None

    async def explain(self, decision_id: int | None, subject: str | None, /) -> ExplanationView:
        found = await self.decision(17 if decision_id is None else decision_id)
        if found is None or subject not in (None, found.subject):
            message = "No decision has been made yet about that."
            raise NotFoundError(message, hint="mtpctl decisions lists what there is.")
        return dataclasses.replace(views.explanation(), decision=found)

    async def report(self, subject: str | None, /) -> ReportView:
        found = study.report()
        if subject not in {None, "default", *(row.model for row in found.matrix)}:
            message = f"there is no model or pool {subject!r}"
            raise UnknownNameError(message)
        return dataclasses.replace(found, subject=subject)

    def feed(self) -> LogFeed:
        return self.lines

    def position(self) -> Position:
        return self.bus.boot, self.bus.seq

    def subscribe(
        self, after: Position | None
    ) -> AbstractAsyncContextManager[AsyncIterator[Envelope | SubscriberDropped]]:
        return self.bus.subscribe(None if after is None else Seq(after[1]))

    def stalled(self) -> None:
        self.bus.stalled()

    def config(self) -> tuple[ConfigValueView, ...]:
        return views.config_values()

    async def run(self) -> None:
        """Move operations on, a step at a time, whenever the loop is free."""
        while True:
            for found in tuple(self._operations.values()):
                if found.state not in ENDED and found.kind not in self.queued:
                    self._step(found)
            await anyio.sleep(0.005)

    async def _need(self, name: str) -> ModelView:
        found = await self.model(name)
        if found is None:
            message = f"There is no model {name!r}."
            raise NotFoundError(message, hint="mtpctl models lists them.")
        return found

    def _start(
        self,
        kind: str,
        params: dict[str, Json],
        key: str | None,
        result: dict[str, Json],
    ) -> OperationView:
        if key is not None and (earlier := self._keys.get(key)) is not None:
            if earlier.params == params:
                return self._operations[earlier.id]
            message = f"The key {key!r} was used for another request."
            raise ConflictError(message, hint="Use a new key for each request.")
        self.calls.append((kind, dict(params)))
        operation = OperationView(
            id=f"op-{len(self._operations) + 1:04}",
            kind=kind,
            state="queued",
            params=params,
            progress=ProgressView(done=0, total=STEPS, note="waiting for its turn"),
            created_at=AT,
            started_at=None,
            ended_at=None,
            result=None,
            error=None,
        )
        self._results[operation.id] = result
        if key is not None:
            self._keys[key] = operation
        return self._move(operation)

    def _step(self, found: OperationView) -> None:
        done = found.progress.done + 1
        if found.kind in self.held and done > 1:
            return
        if done <= STEPS:
            progress = ProgressView(done=done, total=STEPS, note=f"step {done}")
            self._move(found, state="running", started_at=AT, progress=progress)
        elif found.kind in self.failing:
            error: dict[str, Json] = {
                "type": "urn:mtpd:problem:engine",
                "title": "The engine did not start or died",
                "status": 502,
                "detail": "The engine ran out of device memory while it loaded.",
                "hint": "Choose a smaller context or depth.",
            }
            self._move(found, state="failed", ended_at=AT, error=error)
        else:
            self._move(found, state="done", ended_at=AT)

    def _move(self, operation: OperationView, **changes: Any) -> OperationView:
        moved = dataclasses.replace(operation, **changes)
        if moved.state == "done":
            moved = dataclasses.replace(moved, result=self._results[moved.id])
        self._operations[moved.id] = moved
        self.bus.publish(OperationChanged(operation=moved))
        return moved


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Where a scripted daemon listens."""

    backend: ScriptedBackend
    socket: Path
    port: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServedInThread(Served):
    """The same, where the loop runs in a thread of its own."""

    loop: asyncio.AbstractEventLoop
    end: asyncio.Event
    thread: threading.Thread

    def publish(self, event: Event) -> None:
        """Publish from any thread."""
        self.loop.call_soon_threadsafe(self.backend.bus.publish, event)

    def stop(self) -> None:
        """End the daemon before the block ends."""
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.end.set)
            self.thread.join(10)


@asynccontextmanager
async def serving(
    backend: ScriptedBackend,
    socket: Path,
    *,
    uid: int | None = None,
    gid: int = -1,
    stream: StreamSettings | None = None,
    add: Callable[[web.Application], None] = lambda _app: None,
    metrics: Handler | None = None,
    others: Sequence[Route] = (),
) -> AsyncIterator[Served]:
    """Serve the control API on a real control socket and a real loopback port."""
    app = web.Application()
    policy = Policy(daemon_uid=os.getuid() if uid is None else uid, daemon_gid=gid)
    mount(app, backend, auth=policy, stream=stream, metrics=metrics, others=others)
    add(app)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=2, access_log=None)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(socket)).start()
        tcp = web.TCPSite(runner, "127.0.0.1", 0)
        await tcp.start()
        port = int(runner.addresses[-1][1])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend.run)
            yield Served(backend=backend, socket=socket, port=port)
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await runner.cleanup()


@contextmanager
def served_in_thread(backend: ScriptedBackend, socket: Path) -> Iterator[ServedInThread]:
    """The same for tests that are not asynchronous: a loop of its own in a thread."""
    started = threading.Event()
    served: list[ServedInThread] = []

    async def main() -> None:
        end = asyncio.Event()
        async with serving(backend, socket) as here:
            served.append(
                ServedInThread(
                    backend=backend,
                    socket=here.socket,
                    port=here.port,
                    loop=asyncio.get_running_loop(),
                    end=end,
                    thread=thread,
                )
            )
            started.set()
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="mtpd-fake-daemon")
    thread.start()
    try:
        if not started.wait(10):
            message = "the scripted daemon did not start"
            raise MtpdError(message)
        yield served[0]
    finally:
        for one in served:
            one.stop()
