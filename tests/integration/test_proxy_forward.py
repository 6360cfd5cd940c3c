from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import anyio
import pytest

from tests.fakes.actors import Loads
from tests.fakes.board import arm, until
from tests.fakes.front import CHAT, JSON, stage
from tests.fakes.patience import SOON_S
from tests.fakes.upstream import DONE, SSE, Conversation, json_reply, stream

if TYPE_CHECKING:
    from tests.fakes.actors import FakeActor

KIND = "application/json"
ASK = b'{"model":"a","stream":true}'
REPLY = json.dumps(
    {
        "choices": [{"message": {"content": "h\u00e9"}}],
        "usage": {"prompt_tokens": 4, "completion_tokens": 9},
        "timings": {"predicted_per_second": 33.5, "draft_n": 8, "draft_n_accepted": 6},
    }
).encode()


def unchunked(wire: bytes) -> bytes:
    """The body of a chunked response, whether or not it ended."""
    body = wire.partition(b"\r\n\r\n")[2]
    out = b""
    while match := re.match(rb"([0-9a-f]+)\r\n", body):
        size = int(match[1], 16)
        out += body[match.end() : match.end() + size]
        body = body[match.end() + size + 2 :]
    return out


async def silent(talk: Conversation) -> None:
    """Never answer."""
    await talk.until_gone()


async def endless(talk: Conversation) -> None:
    """Stream until the other side goes."""
    await talk.head(SSE)
    await talk.chunk(b'data: {"content":"1"}\n\n')
    await talk.until_gone()


# Relaying ---------------------------------------------------------------------------


async def test_a_json_response_is_relayed_with_the_daemons_headers_and_recorded() -> None:
    async with stage(json_reply(REPLY, pieces=(5, 40))) as s:
        s.bench.chosen["a"] = arm("a", 2)
        response, body = await s.post(messages=[])
        assert (response.status, body) == (200, REPLY)
        assert response.headers["X-Mtpd-Instance"] == "life-1"
        assert response.headers["X-Mtpd-Profile"] == "a"
        assert response.headers["X-Mtpd-Depth"] == "2"
        assert response.headers["Content-Type"] == "application/json; charset=utf-8"
        (event,) = s.finished
        assert (event.profile, event.depth, event.path) == ("a", 2, CHAT)
        assert (event.outcome, event.status) == ("complete", 200)
        assert (event.prompt_tokens, event.completion_tokens) == (4, 9)
        assert (event.decode_tps, event.drafted, event.accepted) == (33.5, 8, 6)


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/completion", "/completions"])
async def test_every_inference_path_is_relayed_under_its_own_name_with_the_same_bytes(
    path: str,
) -> None:
    raw = b'{ "model": "alias-of-a" ,"n":1e0, "\\u0041":"\xc3\xa9"}\n'
    async with stage(json_reply(REPLY)) as s:
        await s.post(path, data=raw)
        (seen,) = s.engine.seen
        assert seen.line == f"POST {path} HTTP/1.1"
        assert seen.body == raw


async def test_what_the_engine_sends_is_passed_on_at_once() -> None:
    go = anyio.Event()

    async def slowly(talk: Conversation) -> None:
        await talk.head(SSE)
        await talk.chunk(b"data: 1\n\n")
        await go.wait()
        await talk.chunk(DONE)
        await talk.end()

    async with stage(slowly) as s:
        wire = await s.connect(ASK)
        assert (await wire.until(b"data: 1\n\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        go.set()
        assert (await wire.until(b"0\r\n\r\n")).endswith(DONE + b"\r\n0\r\n\r\n")
        wire.leave()


async def test_an_error_of_the_engine_is_the_clients_to_see() -> None:
    bad = b'{"error":{"message":"bad grammar","code":400}}'
    async with stage(json_reply(bad, "400 Bad Request")) as s:
        response, body = await s.post()
        assert (response.status, body) == (400, bad)
        assert s.finished[0].outcome == "failed"


async def test_an_error_event_ends_the_stream_as_the_engine_ended_it() -> None:
    bad = b'data: {"error":{"message":"context full"}}\n\n'
    async with stage(stream(b"data: {}\n\n", bad)) as s:
        _, body = await s.post(stream=True)
        assert body == b"data: {}\n\n" + bad
        assert s.finished[0].outcome == "failed"


async def test_private_headers_stay_on_their_side() -> None:
    engine = {
        "Server": "llama.cpp",
        "Set-Cookie": "a=b",
        "Access-Control-Allow-Origin": "*",
        "Keep-Alive": "timeout=5",
        "X-Secret": "s",
        "Cache-Control": "no-cache",
    }
    client = {
        "Authorization": "Bearer client",
        "Cookie": "c=d",
        "X-Conversation-Id": "7",
        "X-Forwarded-For": "1.2.3.4",
        "X-Api-Key": "k",
        "Forwarded": "for=1.2.3.4",
        "TE": "trailers",
        "Origin": "http://evil",
        "Accept": "text/event-stream",
        "Accept-Encoding": "gzip, br",
    }
    async with stage(stream(DONE, headers=engine)) as s:
        async with s.session.post(s.url(), data=ASK, headers={**JSON, **client}) as response:
            await response.read()
        assert response.headers["Server"] == "mtpd"
        assert response.headers["Cache-Control"] == "no-cache"
        private = set(engine) - {"Server", "Cache-Control"}
        assert private & set(response.headers) == set()
        sent = {name.lower(): value for name, value in s.engine.seen[0].headers.items()}
        assert sent == {
            "host": "engine",
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "content-length": str(len(ASK)),
            "connection": "close",
        }


# Clients that leave -----------------------------------------------------------------


@pytest.mark.parametrize("where", ["prefill", "stream"])
async def test_a_client_that_leaves_frees_the_engine(where: str) -> None:
    async with stage(endless if where == "stream" else silent) as s:
        wire = await s.connect(ASK)
        await until(lambda: s.engine.seen)
        if where == "stream":
            await wire.until(b'"1"}\n\n')
        wire.leave()
        with anyio.fail_after(SOON_S):
            await s.engine.seen[0].gone.wait()
        await until(lambda: s.bench.board.queue().in_flight == 0)
        await until(lambda: s.finished)
        assert (s.finished[0].outcome, s.finished[0].status) == ("client_gone", 499)


async def test_a_client_that_leaves_the_queue_never_reaches_the_engine() -> None:
    async with stage(silent) as s:
        first = await s.connect(ASK)
        await until(lambda: s.engine.seen)
        second = await s.connect(ASK)
        await until(lambda: s.bench.board.queue().waiting == 1)
        second.leave()
        await until(lambda: s.bench.board.queue().waiting == 0)
        first.leave()
        await until(lambda: s.bench.board.queue().in_flight == 0)
        assert len(s.engine.seen) == 1


async def test_a_client_that_leaves_while_its_model_loads_is_forgotten() -> None:
    async with stage(json_reply(REPLY)) as s:
        s.bench.actor("a").script.append(Loads(gate := anyio.Event()))
        wire = await s.connect(ASK)
        await until(lambda: s.bench.board.queue().waiting == 1)
        wire.leave()
        await until(lambda: s.bench.board.queue().waiting == 0)
        await until(lambda: s.finished)
        assert (s.finished[0].outcome, s.finished[0].status) == ("client_gone", 499)
        gate.set()
        assert (await s.post())[0].status == 200
        assert len(s.engine.seen) == 1


async def test_a_prompt_that_is_silent_for_hours_is_no_hang() -> None:
    async def at_last(talk: Conversation) -> None:
        s.bench.clock.advance(10 * 3600)
        s.bench.board.tick()
        await json_reply(REPLY)(talk)

    async with stage(at_last) as s:
        response, body = await s.post()
        assert (response.status, body) == (200, REPLY)
        assert response.headers["X-Mtpd-Attempt"] == "1"
        assert s.quarantine.views() == ()


# Engines that are lost --------------------------------------------------------------


@pytest.mark.parametrize("keep", range(0, 60, 7))
async def test_an_engine_killed_in_mid_stream_is_visible_and_never_looks_done(keep: int) -> None:
    sent = b'data: {"content":"eins"}\n\ndata: {"content":"zwei"}\n\n: ping\n\n'[: keep + 1]

    async def dying(talk: Conversation) -> None:
        await talk.head(SSE)
        await talk.chunk(sent)
        await relayed.wait()
        talk.kill()

    relayed = anyio.Event()
    async with stage(dying) as s:
        wire = await s.connect(ASK)
        first = await wire.until(sent[-1:] + b"\r\n")
        relayed.set()
        whole = first + await wire.rest()
        assert not whole.endswith(b"0\r\n\r\n")
        body = unchunked(whole)
        assert body.startswith(sent)
        assert b"[DONE]" not in body
        assert body[len(sent) :].startswith(b"data: " if sent.endswith(b"\n\n") else b"\n\ndata: ")
        last = json.loads(body.rstrip().rpartition(b"data: ")[2])
        assert last["error"]["type"] == "upstream_lost"
        assert s.finished[0].outcome == "upstream_lost"


async def test_a_stream_that_ends_politely_but_too_early_is_not_passed_off_as_whole() -> None:
    async with stage(stream(b'data: {"content":"1","stop":false}\n\n')) as s:
        wire = await s.connect(ASK, "/completion")
        whole = await wire.rest()
        assert not whole.endswith(b"0\r\n\r\n")
        assert b"upstream_lost" in whole


async def test_a_json_response_that_breaks_off_is_cut_and_not_completed() -> None:
    async def dying(talk: Conversation) -> None:
        await talk.head({"Content-Type": "application/json", "Content-Length": "500"})
        await talk.raw(b'{"choices":')
        talk.writer.close()

    async with stage(dying) as s:
        wire = await s.connect(b'{"model":"a"}')
        whole = await wire.rest()
        assert whole.endswith(b'{"choices":')
        assert s.finished[0].outcome == "upstream_lost"


async def test_an_engine_lost_before_its_first_byte_is_tried_once_more_when_it_is_back() -> None:
    async def once(talk: Conversation) -> None:
        if len(s.engine.seen) == 1:
            s.bench.actor("a").crash()
            talk.kill()
        else:
            await stream(DONE)(talk)

    async with stage(once) as s, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: recover(s.bench.actor("a")))
        response, body = await s.post(stream=True)
        assert body == DONE
        assert response.headers["X-Mtpd-Attempt"] == "2"
        assert [talk.body for talk in s.engine.seen] == [s.engine.seen[0].body] * 2


async def recover(actor: FakeActor) -> None:
    await until(lambda: actor.view().state == "backoff")
    actor.recover()


async def test_an_engine_that_stays_lost_is_a_502() -> None:
    async def always(talk: Conversation) -> None:
        s.bench.actor("a").crash()
        s.bench.actor("a").give_up()
        talk.kill()

    async with stage(always) as s:
        response, body = await s.post(stream=True)
        assert response.status == 502
        assert json.loads(body)["error"]["type"] == "upstream_lost"
        assert len(s.engine.seen) == 1


async def test_nothing_is_sent_twice_once_a_byte_was_relayed() -> None:
    async def dying(talk: Conversation) -> None:
        await talk.head(SSE)
        await talk.chunk(b": ping\n\n")
        await until(lambda: s.finished or talk.writer.transport.get_write_buffer_size() == 0)
        talk.writer.close()

    async with stage(dying) as s:
        wire = await s.connect(ASK)
        assert b"upstream_lost" in await wire.rest()
        assert len(s.engine.seen) == 1


async def test_a_request_cut_by_force_before_its_first_byte_is_done_by_the_next_engine() -> None:
    async def first_silent(talk: Conversation) -> None:
        await (silent if len(s.engine.seen) == 1 else json_reply(REPLY))(talk)

    async with stage(first_silent) as s, anyio.create_task_group() as tasks:

        async def ask() -> None:
            response, body = await s.post()
            assert body == REPLY
            assert response.headers["X-Mtpd-Depth"] == "3"

        tasks.start_soon(ask)
        await until(lambda: s.engine.seen)
        await s.bench.board.switch(arm("a", 3), reason="now", force=True, drain_timeout_s=0.01)
