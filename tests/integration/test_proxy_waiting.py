from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import anyio

from mtpd.proxy.quotas import Quotas
from tests.fakes.actors import Fails, Loads
from tests.fakes.board import Queue, arm, until
from tests.fakes.front import CALLER_HEADER, stage
from tests.fakes.patience import SOON_S
from tests.fakes.upstream import json_reply

if TYPE_CHECKING:
    from tests.fakes.front import Stage
    from tests.fakes.upstream import Conversation

REPLY = b'{"choices":[{"message":{"content":"x"}}]}'


async def test_64_wait_and_the_next_is_told_at_once_when_to_come_back() -> None:
    async with stage(json_reply(REPLY)) as s:
        s.bench.actor("a").script.append(Loads(gate := anyio.Event()))
        async with anyio.create_task_group() as tasks:
            for _ in range(64):
                tasks.start_soon(s.post)
            await until(lambda: s.bench.board.queue().waiting == 64)
            with anyio.fail_after(SOON_S):
                response, body = await s.post()
            assert response.status == 503
            assert int(response.headers["Retry-After"]) >= 1
            assert json.loads(body)["error"]["code"] == "queue_full"
            gate.set()
        outcomes = [event.outcome for event in s.finished]
        assert outcomes == ["rejected", *["complete"] * 64]


async def test_a_request_that_waited_too_long_gets_503_and_never_reaches_the_engine() -> None:
    async with stage(json_reply(REPLY)) as s, anyio.create_task_group() as tasks:
        s.bench.actor("a").script.append(Loads(anyio.Event()))

        async def ask() -> None:
            response, body = await s.post()
            assert response.status == 503
            assert int(response.headers["Retry-After"]) >= 1
            error = json.loads(body)["error"]
            assert error["code"] == "queue_timeout"
            assert "within 120 s" in error["message"]

        tasks.start_soon(ask)
        await until(lambda: s.bench.board.queue().waiting)
        s.bench.clock.advance(120)
        s.bench.board.tick()
        await until(lambda: s.finished)
        assert s.finished[0].duration_s == 120
        assert s.engine.seen == []


async def test_a_model_that_cannot_start_is_told_with_its_reason() -> None:
    async with stage(json_reply(REPLY)) as s:
        s.bench.actor("b").script.append(Fails())
        response, body = await s.post(model="b")
        assert response.status == 503
        assert json.loads(body)["error"] == {
            "message": "the model file is truncated",
            "type": "unavailable_error",
            "code": "engine_unavailable",
            "param": None,
        }


async def test_requests_wait_through_a_switch_and_none_is_lost() -> None:
    async with stage(json_reply(REPLY), slots=2) as s, anyio.create_task_group() as tasks:
        depths: list[str] = []

        async def ask() -> None:
            for _ in range(8):
                response, body = await s.post()
                assert body == REPLY
                depths.append(response.headers["X-Mtpd-Depth"])

        for _ in range(6):
            tasks.start_soon(ask)
        for depth in (1, 2, 3):
            await s.bench.board.switch(arm("a", depth), reason="test")
        await until(lambda: len(depths) == 48)
        assert depths[-1] == "3"
        assert {event.outcome for event in s.finished} == {"complete"}


async def test_an_urgent_request_is_served_before_one_that_came_first() -> None:
    async with stage(json_reply(REPLY)) as s:
        s.bench.actor("a").script.append(Loads(gate := anyio.Event()))
        async with anyio.create_task_group() as tasks:
            for number, priority in enumerate(("low", "normal", "HIGH")):
                tasks.start_soon(ask_with, s, {"X-Mtpd-Priority": priority})
                await until(partial(waits, s, number + 1))
            gate.set()
        users = [json.loads(talk.body)["user"] for talk in s.engine.seen]
        assert users == ["HIGH", "normal", "low"]


async def test_a_priority_that_does_not_exist_is_refused() -> None:
    async with stage(json_reply(REPLY)) as s:
        headers = {"X-Mtpd-Priority": "urgent"}
        async with s.session.post(s.url(), json={"model": "a"}, headers=headers) as response:
            error = (await response.json())["error"]
        assert response.status == 400
        assert (error["code"], error["param"]) == ("invalid_header", "X-Mtpd-Priority")
        assert "one of high, normal, low" in error["message"]
        assert s.engine.seen == []


async def test_a_model_at_its_limit_answers_429_with_the_time_until_a_place_is_free() -> None:
    async def ten_seconds(talk: Conversation) -> None:
        s.bench.clock.advance(10)
        await json_reply(REPLY)(talk)

    async with stage(ten_seconds, slots=2, quotas=Quotas(per_model=lambda _: 2)) as s:
        await s.post()
        s.engine.script = silent
        held = [await s.connect(b'{"model":"a"}') for _ in range(2)]
        await until(lambda: len(s.engine.seen) == 3)
        response, body = await s.post()
        error = json.loads(body)["error"]
        assert (response.status, response.headers["Retry-After"]) == (429, "5")
        assert (error["code"], error["type"]) == ("concurrency_limit", "rate_limit_error")
        held[0].leave()
        await until(lambda: s.bench.board.queue().in_flight == 1)
        await until(lambda: len(s.finished) == 3)
        s.engine.script = json_reply(REPLY)
        assert (await s.post())[0].status == 200
        refused = [event.refused for event in s.finished if event.outcome == "rejected"]
        assert refused == ["model"]


async def test_a_token_at_its_limit_is_told_and_another_one_is_served() -> None:
    async with stage(json_reply(REPLY), quotas=Quotas(per_caller=lambda: 1)) as s:
        s.bench.actor("a").script.append(Loads(gate := anyio.Event()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_with, s, {CALLER_HEADER: "laptop"})
            await until(partial(waits, s, 1))
            error = await refused_to(s, "laptop")
            tasks.start_soon(ask_with, s, {CALLER_HEADER: "phone"})
            await until(partial(waits, s, 2))
            gate.set()
        assert error["code"] == "rate_limit_exceeded"
        assert "the token laptop has as many requests open as it may (1)" in error["message"]
        outcomes = [(event.outcome, event.refused) for event in s.finished]
        assert outcomes == [("rejected", "caller"), ("complete", None), ("complete", None)]


async def test_a_token_with_as_many_requests_waiting_as_it_may_is_told() -> None:
    async with stage(json_reply(REPLY), limits=Queue(max_waiting_per_token=1)) as s:
        s.bench.actor("a").script.append(Loads(gate := anyio.Event()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_with, s, {CALLER_HEADER: "laptop"})
            await until(partial(waits, s, 1))
            error = await refused_to(s, "laptop")
            gate.set()
        assert error["code"] == "rate_limit_exceeded"
        assert "requests waiting" in error["message"]


async def silent(talk: Conversation) -> None:
    await talk.until_gone()


async def refused_to(s: Stage, caller: str) -> dict[str, str]:
    headers = {CALLER_HEADER: caller}
    async with s.session.post(s.url(), json={"model": "a"}, headers=headers) as response:
        body: dict[str, dict[str, str]] = await response.json()
    assert response.status == 429
    assert int(response.headers["Retry-After"]) >= 1
    return body["error"]


def waits(s: Stage, count: int) -> bool:
    return s.bench.board.queue().waiting == count


async def ask_with(s: Stage, headers: dict[str, str]) -> None:
    body = {"model": "a", "user": headers.get("X-Mtpd-Priority")}
    async with s.session.post(s.url(), json=body, headers=headers) as response:
        assert await response.read() == REPLY
