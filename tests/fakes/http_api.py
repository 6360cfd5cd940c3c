"""The fake engine's HTTP side: routes, slots, generation and its live numbers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.fakes import replies
from tests.fakes.generation import Request, Spec, Totals, steps
from tests.fakes.log_lines import request_lines

if TYPE_CHECKING:
    from tests.fakes.generation import Step
    from tests.fakes.log_lines import Log
    from tests.fakes.script import Script

__all__ = ["Engine", "application"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


LOST = "vk::Queue::submit: ErrorDeviceLost"


@dataclass(slots=True, kw_only=True)
class Engine:
    """Everything that changes while the fake runs."""

    script: Script
    log: Log
    spec: Spec
    slots: int
    context: int
    seed: int
    keys: tuple[str, ...]
    with_metrics: bool
    with_slots: bool
    model: str
    ready: bool = False
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    totals: Totals = field(default_factory=Totals)
    running: dict[int, int] = field(default_factory=dict)
    """Tokens so far by task."""
    waiting: int = 0
    decodes: int = 0
    tasks: int = 0
    open_requests: int = 0
    empty: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request has ended and none is left."""
    tokens: int = 0
    lost: bool = False
    cached: tuple[str, int] = ("", 0)
    """The prompt whose text the slot holds, and how many tokens of both together."""
    free: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        """Make as many permits as slots."""
        self.free = asyncio.Semaphore(self.slots)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """Wait for a slot and hold it; a client that leaves gives it back."""
        task, self.tasks = self.tasks, self.tasks + 1
        self.waiting += 1
        try:
            await self.free.acquire()
        finally:
            self.waiting -= 1
        self.running[task] = 0
        try:
            yield task
        finally:
            del self.running[task]
            self.free.release()

    async def generate(self, request: Request) -> AsyncGenerator[tuple[Step, Totals]]:
        """Each step with the sums so far; they reach the process's sums at the end."""
        async with self.slot() as task:
            kept = self._kept(request)
            prompt_n = request.prompt_tokens - kept
            prompt_ms = 1000.0 * prompt_n / self.script.prompt_tps
            totals = Totals(cache_n=kept, prompt_n=prompt_n, prompt_ms=prompt_ms)
            try:
                for step in steps(self.script, self.spec, request):
                    await self._pace(step.ms or prompt_ms)
                    totals.add_step(step, self.spec.depth)
                    self._count(step, task)
                    # The last token of a step is decoded by the next one.
                    length = request.prompt_tokens + totals.predicted_n - 1
                    self.cached = (request.prompt, length)
                    yield step, totals
            except (asyncio.CancelledError, GeneratorExit):
                self.log.say("W", f"srv          stop: cancel task, id_task = {task}")
                self.totals.add(totals)
                raise
            self.totals.add(totals)
            for kind, text in request_lines(totals, self.totals, task):
                self.log.say(kind, text)
            if self.script.spam_request:
                self.log.noise(self.script.spam_request, task)

    def _kept(self, request: Request) -> int:
        """Cached tokens; a recurrent state goes on exactly where it ends, or not at all."""
        prompt, length = self.cached
        goes_on = prompt == request.prompt and length < request.prompt_tokens
        return length if request.reuse and goes_on else 0

    async def _pace(self, ms: float) -> None:
        await asyncio.sleep(ms / 1000.0 if self.script.realtime else 0)
        if self.stopping.is_set():
            # The real one stops the flow of tokens and then waits for the client to leave.
            await asyncio.Event().wait()

    def _count(self, step: Step, task: int) -> None:
        self.decodes += 1
        self.running[task] += len(step.tokens)
        self.tokens += len(step.tokens)
        if self.script.crash_at_token is not None and self.tokens >= self.script.crash_at_token:
            self.log.raw("ggml-backend.cpp:930: GGML_ASSERT(false) failed")
            os.abort()
        if self.script.lose_card_at_token is not None:
            self.lost = self.lost or self.tokens >= self.script.lose_card_at_token
            if self.lost:
                if self.script.say_lost:
                    self.log.say("E", f"srv  update_slots: decode() failed: {LOST}")
                raise web.HTTPInternalServerError


def application(engine: Engine) -> web.Application:
    """The routes over one engine."""
    app = web.Application(middlewares=[_guard(engine)], client_max_size=64 * 1024**2)
    app.router.add_get("/health", _health(engine))
    app.router.add_get("/v1/health", _health(engine))
    app.router.add_get("/v1/models", _models(engine))
    app.router.add_get("/metrics", _metrics(engine))
    app.router.add_get("/slots", _slots(engine))
    app.router.add_get("/props", _props(engine))
    app.router.add_post("/apply-template", _template)
    app.router.add_post("/completion", _generation(engine, _Native()))
    app.router.add_post("/v1/completions", _generation(engine, _Text()))
    app.router.add_post("/v1/chat/completions", _generation(engine, _Chat()))
    return app


def _refuse(code: int, message: str, kind: str) -> web.Response:
    return web.json_response(replies.error(code, message, kind), status=code)


def _guard(engine: Engine) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        engine.open_requests += 1
        engine.empty.clear()
        try:
            if not engine.ready and not (engine.script.lie_health and "health" in request.path):
                return _refuse(503, "Loading model", "unavailable_error")
            if engine.keys and "health" not in request.path and _key(request) not in engine.keys:
                return _refuse(401, "Invalid API Key", "authentication_error")
            return await handler(request)
        except web.HTTPInternalServerError:
            return _refuse(500, LOST, "server_error")
        except web.HTTPNotFound:
            return _refuse(404, "File Not Found", "not_found_error")
        finally:
            engine.open_requests -= 1
            if not engine.open_requests:
                engine.empty.set()

    return guard


def _key(request: web.Request) -> str:
    bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
    return bearer or request.headers.get("X-Api-Key", "")


def _health(engine: Engine) -> Handler:
    async def health(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    return health


def _models(engine: Engine) -> Handler:
    async def models(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": engine.model}]})

    return models


def _metrics(engine: Engine) -> Handler:
    async def metrics(request: web.Request) -> web.Response:
        if not engine.with_metrics:
            message = "This server does not support metrics endpoint. Start it with `--metrics`"
            return _refuse(501, message, "not_supported_error")
        text = replies.metrics(
            engine.script,
            engine.totals,
            decodes=engine.decodes,
            processing=len(engine.running),
            deferred=engine.waiting,
        )
        return web.Response(text=text, content_type="text/plain")

    return metrics


def _slots(engine: Engine) -> Handler:
    async def slots(request: web.Request) -> web.Response:
        if engine.script.hang_slots:
            await asyncio.Event().wait()
        if not engine.with_slots:
            return _refuse(
                501, "This server does not support slots endpoint", "not_supported_error"
            )
        busy = [*engine.running.items(), *[None] * engine.slots][: engine.slots]
        return web.json_response([replies.slot(engine, n, entry) for n, entry in enumerate(busy)])

    return slots


def _props(engine: Engine) -> Handler:
    async def props(request: web.Request) -> web.Response:
        found = {"total_slots": engine.slots, "model_path": engine.model, "is_sleeping": False}
        return web.json_response(found | {"build_info": "b0-unknown"})

    return props


async def _template(request: web.Request) -> web.Response:
    return web.json_response({"prompt": _Chat().prompt(await request.json())})


class _Native:
    """`/completion`: no closing mark, the last event says stop."""

    closing = b""

    def prompt(self, body: dict[str, Any]) -> str:
        return str(_parts(body)[0])

    def first(self) -> list[bytes]:
        return []

    def chunk(self, text: str) -> bytes:
        return replies.event(replies.native(text))

    def last(self, totals: Totals, body: dict[str, Any]) -> list[bytes]:
        return [replies.event(self.whole("", totals))]

    def whole(self, text: str, totals: Totals) -> dict[str, Any]:
        return replies.native(
            text,
            stop=True,
            stop_type="limit",
            tokens_predicted=totals.predicted_n,
            tokens_evaluated=totals.cache_n + totals.prompt_n,
            timings=totals.timings(),
        )


class _Text(_Native):
    """`/v1/completions`."""

    closing = replies.DONE

    def chunk(self, text: str) -> bytes:
        return replies.event(replies.text_chunk(text))

    def whole(self, text: str, totals: Totals) -> dict[str, Any]:
        more = {"usage": replies.usage(totals), "timings": totals.timings()}
        return replies.text_chunk(text, "length", **more)


class _Chat(_Text):
    """`/v1/chat/completions`: the timings are in the chunk with the reason, or in the usage's."""

    def prompt(self, body: dict[str, Any]) -> str:
        return "\n".join(str(message.get("content", "")) for message in body.get("messages", []))

    def first(self) -> list[bytes]:
        return [replies.event(replies.chat_chunk({"role": "assistant", "content": None}))]

    def chunk(self, text: str) -> bytes:
        return replies.event(replies.chat_chunk({"content": text}))

    def last(self, totals: Totals, body: dict[str, Any]) -> list[bytes]:
        timings = totals.timings()
        if not (body.get("stream_options") or {}).get("include_usage"):
            return [replies.event(replies.chat_chunk({}, "length", timings=timings))]
        usage = replies.chat_chunk({}, usage=replies.usage(totals), timings=timings)
        usage["choices"] = []
        return [replies.event(replies.chat_chunk({}, "length")), replies.event(usage)]

    def whole(self, text: str, totals: Totals) -> dict[str, Any]:
        more = {"usage": replies.usage(totals), "timings": totals.timings()}
        return replies.chat_reply(text, **more)


def _generation(engine: Engine, form: _Native) -> Handler:
    async def generation(request: web.Request) -> web.StreamResponse:
        body: dict[str, Any] = await request.json()
        asked = _request(engine, form.prompt(body), body)
        if body.get("stream"):
            return await _stream(engine, form, request, body, asked)
        text, totals = "", Totals()
        async with aclosing(engine.generate(asked)) as generated:
            async for step, sums in generated:
                text, totals = text + "".join(step.tokens), sums
        whole = form.whole(text, totals)
        if body.get("return_tokens"):
            # The words of a text are numbered; the number is the token.
            whole["tokens"] = list(range(asked.made, asked.made + totals.predicted_n))
        return web.json_response(whole)

    return generation


def _parts(body: dict[str, Any]) -> list[Any]:
    """A prompt's text and the tokens that follow it."""
    prompt = body.get("prompt", "")
    return prompt if isinstance(prompt, list) else [prompt]


def _request(engine: Engine, prompt: str, body: dict[str, Any]) -> Request:
    request = Request(
        prompt=prompt,
        seed=int(body.get("seed", engine.seed)),
        limit=1,
        made=len(_parts(body)) - 1,
        reuse=bool(body.get("cache_prompt", True)),
    )
    asked = int(body.get("n_predict") or body.get("max_tokens") or -1)
    room = max(1, engine.context // engine.slots - request.prompt_tokens)
    limit = room if asked < 0 else min(asked, room)
    return replace(request, limit=limit)


async def _stream(
    engine: Engine, form: _Native, request: web.Request, body: dict[str, Any], asked: Request
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    totals = Totals()
    for part in form.first():
        await response.write(part)
    async with aclosing(engine.generate(asked)) as generated:
        async for step, sums in generated:
            totals = sums
            for token in step.tokens:
                await response.write(form.chunk(token))
    for part in form.last(totals, body):
        await response.write(part)
    if form.closing:
        await response.write(form.closing)
    await response.write_eof()
    return response
