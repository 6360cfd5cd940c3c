"""Requests of which engines die: suspected, tried alone, refused; everybody else is served."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anyio
import pytest

from tests.fakes.actors import Fails
from tests.fakes.board import arm, until
from tests.fakes.front import stage
from tests.fakes.upstream import SSE, json_reply

if TYPE_CHECKING:
    from tests.fakes.front import Stage
    from tests.fakes.upstream import Conversation

REPLY = b'{"choices":[{"message":{"content":"x"}}]}'


class Fragile:
    """An engine that dies of every body with the word "poison"."""

    def __init__(self) -> None:
        self.stage: Stage | None = None
        self.silent = False
        self.company: list[int] = []

    async def __call__(self, talk: Conversation) -> None:
        assert self.stage is not None
        self.company.append(self.stage.bench.board.queue().in_flight)
        if b"poison" in talk.body:
            self.stage.bench.actor("a").crash()
            talk.kill()
        elif self.silent:
            await talk.until_gone()
        else:
            await json_reply(REPLY)(talk)


class Deadly:
    """An engine that answers nobody before it has died, and dies of "poison".

    Attributes:
        asked: How many requests have come to it.
        deaths: How often it has died.
    """

    def __init__(self) -> None:
        self.stage: Stage | None = None
        self.asked = self.deaths = 0

    async def __call__(self, talk: Conversation) -> None:
        assert self.stage is not None
        self.asked += 1
        actor = self.stage.bench.actor("a")
        if actor.view().state == "backoff":
            talk.kill()
        elif b"poison" in talk.body:
            self.deaths += 1
            actor.crash()
            for other in self.stage.engine.seen:  # a process that died has closed them all
                other.kill()
        elif self.deaths:
            await json_reply(REPLY)(talk)
        else:
            await talk.until_gone()


async def test_a_request_that_kills_the_engine_twice_is_refused_and_others_are_served() -> None:
    engine = Fragile()
    async with stage(engine) as s, anyio.create_task_group() as tasks:
        engine.stage = s
        tasks.start_soon(supervise, s)
        # It is tried once more by the daemon itself; that was the second time.
        response, body = await s.post(prompt="poison")
        error = json.loads(body)["error"]
        assert (response.status, error["code"]) == (422, "request_quarantined")
        assert "the engine of a died twice while it worked on this request" in error["message"]
        assert "crash: the engine died" in error["message"]
        assert "mtpctl quarantine clear" in error["message"]
        deaths = len(s.engine.seen)

        assert (await s.post(prompt="poison"))[0].status == 422
        assert len(s.engine.seen) == deaths == 2
        assert (await s.post(prompt="fine"))[0].status == 200
        assert (await s.post(prompt="poison", model="b"))[0].status != 422

        (entry,) = s.quarantined
        assert [death.cause for death in entry.deaths] == ["crash: the engine died"] * 2
        (shown,) = s.quarantine.views()
        assert (shown.profile, shown.id) == ("a", entry.fingerprint[:12])
        tasks.cancel_scope.cancel()


async def test_a_released_request_may_try_again_and_so_it_may_after_an_hour() -> None:
    engine = Fragile()
    async with stage(engine) as s, anyio.create_task_group() as tasks:
        engine.stage = s
        tasks.start_soon(supervise, s)
        await s.post(prompt="poison")
        (shown,) = s.quarantine.views()
        assert s.quarantine.release("other") is None
        assert s.quarantine.release(shown.id) is not None
        await s.post(prompt="poison")
        assert len(s.engine.seen) == 4
        s.bench.clock.advance(3600)
        await s.post(prompt="poison")
        assert len(s.engine.seen) == 6
        tasks.cancel_scope.cancel()


async def test_whoever_ran_beside_it_is_tried_alone_and_served() -> None:
    engine = Fragile()
    engine.silent = True
    async with stage(engine, slots=2) as s, anyio.create_task_group() as tasks:
        engine.stage = s
        answers: dict[str, int] = {}

        async def ask(prompt: str) -> None:
            answers[prompt] = (await s.post(prompt=prompt))[0].status

        tasks.start_soon(ask, "innocent")
        await until(lambda: len(s.engine.seen) == 1)
        tasks.start_soon(ask, "poison")
        await until(lambda: s.bench.actor("a").view().state == "backoff")
        engine.silent = False
        for talk in s.engine.seen:  # a process that died has closed every connection
            talk.kill()
        tasks.start_soon(supervise, s)
        await until(lambda: len(answers) == 2)
        assert answers == {"innocent": 200, "poison": 422}
        assert len(s.quarantined) == 1
        assert engine.company == [1, 2, 1, 1]
        tasks.cancel_scope.cancel()


async def test_an_engine_that_dies_in_mid_stream_counts_too() -> None:
    async def dying(talk: Conversation) -> None:
        await talk.head(SSE)
        await talk.chunk(b'data: {"content":"1"}\n\n')
        s.bench.actor("a").crash()
        talk.writer.close()

    async with stage(dying) as s:
        for _ in range(2):
            wire = await s.connect(b'{"model":"a","stream":true}')
            assert b"upstream_lost" in await wire.rest()
            s.bench.actor("a").recover()
        response, _ = await s.post(data=b'{"model":"a","stream":true}')
        assert response.status == 422
        assert len(s.engine.seen) == 2


@pytest.mark.parametrize("failure", ["killed_by_operator", "device_lost", "config"])
async def test_a_death_that_no_request_brings_about_is_held_against_none(failure: str) -> None:
    async def dying(talk: Conversation) -> None:
        s.bench.actor("a").die(Fails(failure, "it is gone", "backoff"))
        talk.kill()

    async with stage(dying) as s, anyio.create_task_group() as tasks:
        tasks.start_soon(supervise, s)
        for _ in range(2):
            assert (await s.post())[0].status == 502
        assert s.quarantined == []
        tasks.cancel_scope.cancel()


async def test_an_engine_that_an_operator_stops_makes_no_suspects() -> None:
    async def silent(talk: Conversation) -> None:
        await talk.until_gone()

    async with stage(silent) as s, anyio.create_task_group() as tasks:
        tasks.start_soon(s.post)
        for depth in (1, 2):
            await until(lambda: s.bench.board.queue().in_flight)
            await s.bench.board.switch(arm("a", depth), reason="now", force=True)
        assert s.quarantined == []
        assert s.quarantine.views() == ()
        tasks.cancel_scope.cancel()


async def test_one_death_counts_once_for_all_requests_with_the_same_body() -> None:
    engine = Deadly()
    async with stage(engine, slots=4) as s, anyio.create_task_group() as tasks:
        engine.stage = s
        innocent: list[int] = []

        async def ask() -> None:
            innocent.append((await s.post(prompt="innocent"))[0].status)

        for _ in range(3):
            tasks.start_soon(ask)
        await until(lambda: engine.asked == 3)
        tasks.start_soon(supervise, s)
        response, _ = await s.post(prompt="poison")
        await until(lambda: len(innocent) == 3)
        assert innocent == [200, 200, 200]
        assert response.status == 422
        assert [len(entry.deaths) for entry in s.quarantined] == [2]
        tasks.cancel_scope.cancel()


async def test_one_that_waited_already_runs_alone_once_its_like_is_a_suspect() -> None:
    engine = Deadly()
    async with stage(engine, slots=2) as s, anyio.create_task_group() as tasks:
        engine.stage = s
        answers: list[tuple[str, int]] = []

        async def ask(prompt: str) -> None:
            answers.append((prompt, (await s.post(prompt=prompt))[0].status))

        tasks.start_soon(ask, "innocent")
        await until(lambda: engine.asked == 1)
        # These wait while the first two run, and no body of theirs is suspected yet.
        tasks.start_soon(ask, "poison 1")
        for prompt in ("poison 2", "innocent", "innocent", "innocent"):
            tasks.start_soon(ask, prompt)
        tasks.start_soon(supervise, s)
        await until(lambda: len(answers) == 6)
        assert [status for prompt, status in answers if prompt == "innocent"] == [200] * 4
        assert [status for prompt, status in answers if prompt != "innocent"] == [422] * 2
        tasks.cancel_scope.cancel()


async def supervise(s: Stage) -> None:
    """Bring the engine back whenever it has died and nothing holds on to it any more."""
    actor = s.bench.actor("a")
    revision = actor.revision
    while True:
        if actor.view().state == "backoff":
            await until(lambda: s.bench.board.queue().in_flight == 0)
            actor.recover()
        revision = await actor.wait_change(revision)
