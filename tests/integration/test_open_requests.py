"""Requests that are open, as the status shows them, over real connections."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio

from mtpd.proxy.admission_types import Priority
from mtpd.proxy.open_requests import SHOWN, OpenRequest, OpenRequests
from mtpd.views import QueueRowView
from tests.fakes.actors import Loads
from tests.fakes.board import arm, until
from tests.fakes.clock import FakeClock
from tests.fakes.front import CALLER_HEADER, CHAT, stage
from tests.fakes.upstream import DONE, SSE, Conversation, json_reply

if TYPE_CHECKING:
    from tests.fakes.front import Stage

ASK = {"model": "a", "stream": True, "messages": []}
TOKEN = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'


async def ask(s: Stage, **headers: str) -> None:
    async with s.session.post(s.url(), json=ASK, headers=headers) as response:
        await response.read()


async def test_requests_are_shown_while_they_wait_and_while_they_run() -> None:
    more, last = anyio.Event(), anyio.Event()

    async def engine(talk: Conversation) -> None:
        await talk.head(SSE)
        await talk.chunk(TOKEN * 3)
        await more.wait()
        await talk.chunk(TOKEN)
        await last.wait()
        await talk.chunk(DONE)
        await talk.end()

    async with stage(engine) as s:
        s.bench.chosen["a"] = arm("a", 2)
        s.bench.actor("a").script.append(Loads(loaded := anyio.Event()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ask(s, **{CALLER_HEADER: "ops"}))
            await until(lambda: len(s.requests.views()) == 1)
            tasks.start_soon(lambda: ask(s, **{"X-Mtpd-Priority": "low"}))
            await until(lambda: len(s.requests.views()) == 2)
            s.bench.clock.advance(2)
            first, second = s.requests.views()
            assert (first.state, first.caller, first.priority) == ("waiting", "ops", "normal")
            assert (first.profile, first.path, first.age_s) == ("a", CHAT, 2.0)
            assert first.depth is first.running_s is first.events is first.events_per_s is None
            assert (second.state, second.caller, second.priority) == ("waiting", None, "low")
            loaded.set()
            await until(lambda: s.requests.views()[0].events == 3)
            s.bench.clock.advance(4)
            first, second = s.requests.views()
            assert (first.state, first.depth, first.age_s) == ("running", 2, 6.0)
            assert (first.running_s, first.events_per_s) == (4.0, 0.75)
            assert second.state == "waiting"
            assert s.requests.rows() == (
                QueueRowView(profile="a", priority="normal", waiting=0, running=1),
                QueueRowView(profile="a", priority="low", waiting=1, running=0),
            )
            assert s.requests.passed == 3
            more.set()
            await until(lambda: s.requests.passed == 4)
            last.set()
        assert (s.requests.views(), s.requests.rows()) == ((), ())
        assert s.requests.passed == 10, "twice four tokens and the end mark"


async def test_an_answer_that_is_no_stream_has_no_events() -> None:
    gate = anyio.Event()

    async def engine(talk: Conversation) -> None:
        body = json.dumps({"choices": []}).encode()
        await talk.head({"Content-Type": "application/json", "Content-Length": str(len(body))})
        await talk.raw(body[:3])
        await gate.wait()
        await talk.raw(body[3:])

    async with stage(engine) as s:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(s.post)
            await until(lambda: [one.state for one in s.requests.views()] == ["running"])
            assert s.requests.views()[0].events is None
            gate.set()
        assert s.requests.passed == 0


async def test_a_request_whose_engine_is_lost_waits_again() -> None:
    async def dies_once(talk: Conversation) -> None:
        if len(s.engine.seen) == 1:
            s.bench.actor("a").crash()
            talk.kill()
            return
        await talk.head(SSE)
        await talk.chunk(TOKEN)
        await talk.until_gone()

    async with stage(dies_once) as s:
        wire = await s.connect(json.dumps(ASK).encode())
        await until(lambda: s.bench.actor("a").view().state == "backoff")
        await until(lambda: [one.state for one in s.requests.views()] == ["waiting"])
        assert s.requests.views()[0].depth is None
        s.bench.actor("a").recover()
        await until(lambda: [one.state for one in s.requests.views()] == ["running"])
        wire.leave()
        await until(lambda: s.requests.views() == ())


async def test_a_request_that_needs_no_slot_runs_beside_and_waits_if_it_is_cut() -> None:
    cut = anyio.Event()

    async def engine(talk: Conversation) -> None:
        if len(s.engine.seen) == 2:
            await cut.wait()
            talk.kill()
        await json_reply(b"{}")(talk)

    async with stage(engine) as s:
        await s.post("/tokenize")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: s.post("/tokenize"))
            await until(lambda: [one.state for one in s.requests.views()] == ["running"])
            async with s.bench.board.hold(reason="measuring"):
                cut.set()
                await until(lambda: [one.state for one in s.requests.views()] == ["waiting"])
        assert s.requests.views() == ()


async def test_a_client_that_leaves_is_not_shown_any_more() -> None:
    async def engine(talk: Conversation) -> None:
        await talk.head(SSE)
        await talk.chunk(TOKEN)
        await talk.until_gone()

    async with stage(engine) as s:
        wire = await s.connect(json.dumps(ASK).encode())
        await until(lambda: s.requests.passed == 1)
        wire.leave()
        await until(lambda: s.requests.views() == ())
        assert s.requests.passed == 1, "what was passed on stays so"


def test_only_the_oldest_are_shown_but_all_are_counted() -> None:
    requests, made = OpenRequests(clock := FakeClock()), []
    for number in range(SHOWN + 5):
        one = OpenRequest(
            id=str(number),
            profile="a",
            path=CHAT,
            priority=Priority.NORMAL,
            caller=None,
            came=clock.now(),
        )
        made.append(requests.shown(one))
        made[-1].__enter__()
    assert [one.id for one in requests.views()] == [str(number) for number in range(SHOWN)]
    assert requests.rows()[0].waiting == SHOWN + 5
    for shown in made:
        shown.__exit__(None, None, None)
    assert requests.rows() == ()
