from __future__ import annotations

import json

import anyio
import pytest

from mtpd.proxy.endpoints import ENDPOINTS, Endpoint
from tests.fakes.actors import Fails
from tests.fakes.board import arm, until
from tests.fakes.front import CHAT, stage
from tests.fakes.upstream import Conversation, json_reply, stream

REPLY = b'{"tokens":[1]}'


# JSON ---------------------------------------------------------------------------------


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: e.path)
async def test_every_endpoint_reaches_the_engine_with_the_same_bytes(endpoint: Endpoint) -> None:
    path, target = endpoint.path, endpoint.target
    raw = b'{ "model":"alias-of-a", "x":1e2}\n'
    async with stage(json_reply(REPLY)) as s:
        response, body = await s.post(f"{path}?beta=true", data=raw)
        assert (response.status, body) == (200, REPLY)
        (seen,) = s.engine.seen
        assert (seen.line, seen.body) == (f"POST {target} HTTP/1.1", raw)
        assert s.finished[0].path == path


@pytest.mark.parametrize("path", ["/slots", "/tools", "/lora-adapters", "/v1/stream", "/predict"])
async def test_other_paths_of_the_engine_are_not_there(path: str) -> None:
    async with stage(json_reply(REPLY)) as s:
        response, _ = await s.post(path)
        assert response.status in {404, 405}
        assert s.engine.seen == []


@pytest.mark.parametrize("path", ["/v1/models", "/models"])
async def test_the_models_are_listed_under_both_names(path: str) -> None:
    async with stage(json_reply(REPLY)) as s, s.session.get(s.url(path)) as response:
        assert [card["id"] for card in (await response.json())["data"]] == ["a", "b"]


# Requests that need no slot ------------------------------------------------------------


@pytest.mark.parametrize("path", [e.path for e in ENDPOINTS if e.light])
async def test_counting_does_not_wait_for_the_generation_that_has_the_slot(path: str) -> None:
    async def busy(talk: Conversation) -> None:
        if talk.line.startswith("POST /completion "):
            await talk.head({"Content-Type": "text/event-stream"})
            await talk.raw(b": x\n\n")
            await talk.until_gone()
        await json_reply(REPLY)(talk)

    async with stage(busy) as s:
        wire = await s.connect(b'{"model":"a"}', "/completion")
        await wire.until(b": x\n\n")
        with anyio.fail_after(5):
            response, body = await s.post(path)
            assert (response.status, body) == (200, REPLY)
            async with s.session.get(s.url("/props?model=a")) as reply:
                assert reply.status == 200
        assert s.bench.board.queue().in_flight == 1
        wire.leave()


async def test_counting_loads_a_model_that_is_not_there_and_waits_behind_a_measurement() -> None:
    async with stage(json_reply(REPLY)) as s:
        response, _ = await s.post("/tokenize", model="b")
        assert response.headers["X-Mtpd-Profile"] == "b"
        async with anyio.create_task_group() as tasks:
            async with s.bench.board.hold(reason="measuring"):
                tasks.start_soon(lambda: s.post("/tokenize", model="b"))
                await until(lambda: s.bench.board.queue().waiting == 1)
                assert len(s.engine.seen) == 1
        assert len(s.engine.seen) == 2


async def test_counting_that_is_cut_by_a_switch_is_done_by_the_next_engine() -> None:
    async def first_silent(talk: Conversation) -> None:
        await (talk.until_gone() if len(s.engine.seen) == 2 else json_reply(REPLY)(talk))

    async with stage(first_silent) as s, anyio.create_task_group() as tasks:
        await s.post("/tokenize")

        async def ask() -> None:
            response, body = await s.post("/tokenize")
            assert body == REPLY
            assert response.headers["X-Mtpd-Depth"] == "3"
            assert response.headers["X-Mtpd-Attempt"] == "2"

        tasks.start_soon(ask)
        await until(lambda: len(s.engine.seen) == 2)
        s.bench.chosen["a"] = arm("a", 3)
        await s.bench.board.switch(arm("a", 3), reason="now")


# Properties ---------------------------------------------------------------------------


async def test_properties_come_from_the_models_engine_without_its_paths() -> None:
    whole = {"total_slots": 1, "model_path": "/home/me/x.gguf", "bos_token": "<s>", "ui": True}
    async with stage(json_reply(json.dumps(whole).encode())) as s:
        async with s.session.get(s.url("/props?model=alias-of-a")) as response:
            assert await response.json() == {"total_slots": 1, "bos_token": "<s>"}
            assert response.headers["X-Mtpd-Instance"] == "life-1"
        assert s.engine.seen[0].line == "GET /props HTTP/1.1"
        assert s.bench.board.queue().in_flight == 0
        async with s.session.get(s.url("/props?model=nobody")) as response:
            assert response.status == 404


async def test_properties_of_an_engine_that_cannot_start_or_breaks_off_are_an_error() -> None:
    async def dying(talk: Conversation) -> None:
        talk.kill()

    async with stage(dying) as s:
        s.bench.actor("b").script.append(Fails())
        async with s.session.get(s.url("/props?model=b")) as response:
            assert response.status == 503
        async with s.session.get(s.url("/props?model=a")) as response:
            assert response.status == 502


@pytest.mark.parametrize("reply", [b"[]", b"nonsense", b"[" * 5_000_000])
async def test_properties_that_are_none_are_an_error(reply: bytes) -> None:
    async with stage(json_reply(reply)) as s:
        async with s.session.get(s.url("/props?model=a")) as response:
            assert response.status == 502


# /upstream ----------------------------------------------------------------------------


async def test_upstream_reaches_an_endpoint_of_the_named_engine_with_its_query() -> None:
    async with stage(json_reply(REPLY)) as s:
        await s.post("/upstream/b/tokenize?x=%20y", data=b'{"model":"a"}')
        (seen,) = s.engine.seen
        assert (seen.line, seen.body) == ("POST /tokenize?x=%20y HTTP/1.1", b'{"model":"a"}')
        assert s.finished[0].profile == "b"


async def test_upstream_reads_metrics_and_hides_what_belongs_to_others() -> None:
    async with stage(json_reply(REPLY)) as s:
        async with s.session.get(s.url("/upstream/a/metrics")) as response:
            assert response.status == 200
        for method, path in (("GET", "slots"), ("POST", "slots/0"), ("POST", "props")):
            async with s.session.request(method, s.url(f"/upstream/a/{path}")) as response:
                assert response.status == 403
                assert (await response.json())["error"]["code"] == "control_socket_only"
        assert len(s.engine.seen) == 1


async def test_upstreams_properties_are_the_subset_unless_the_owner_asks() -> None:
    whole = b'{"total_slots":1,"model_path":"/p"}'
    async with stage(json_reply(whole)) as s:
        async with s.session.get(s.url("/upstream/a/props")) as response:
            assert await response.json() == {"total_slots": 1}
        s.owned.append("everything")
        async with s.session.get(s.url("/upstream/a/props")) as response:
            assert await response.read() == whole


async def test_the_owner_reaches_all_of_an_engine_with_any_method() -> None:
    async with stage(json_reply(REPLY)) as s:
        s.owned.append("everything")
        url = s.url("/upstream/a/slots/0?action=erase")
        async with s.session.put(url, data=b"x") as response:
            assert await response.read() == REPLY
        (seen,) = s.engine.seen
        assert (seen.line, seen.body) == ("PUT /slots/0?action=erase HTTP/1.1", b"x")


@pytest.mark.parametrize(("method", "status"), [("GET", 301), ("POST", 308)])
async def test_a_missing_slash_behind_the_name_is_a_redirect(method: str, status: int) -> None:
    async with stage(json_reply(REPLY)) as s:
        url = s.url("/upstream/alias-of-a")
        async with s.session.request(method, url, allow_redirects=False) as response:
            assert response.status == status
            assert response.headers["Location"] == "/upstream/alias-of-a/"


async def test_upstream_of_an_unknown_model_is_not_found() -> None:
    async with stage(json_reply(REPLY)) as s:
        async with s.session.get(s.url("/upstream/alias-of-b/health")) as response:
            assert response.status == 404
            assert "did you mean 'alias-of-a'?" in (await response.json())["error"]["message"]


# Streams of the newer protocols -------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("/v1/messages", b'event: message_stop\ndata: {"type":"message_stop"}\n\n'),
        (
            "/v1/responses",
            b'event: response.completed\ndata: {"type":"response.completed"}\n\n',
        ),
    ],
)
async def test_the_newer_streams_are_complete_with_their_own_end(path: str, last: bytes) -> None:
    async with stage(stream(b'data: {"type":"x"}\n\n', last)) as s:
        _, body = await s.post(path, stream=True)
        assert body.endswith(last)
        assert s.finished[0].outcome == "complete"


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/upstream/a/v1/messages"])
async def test_the_newer_streams_tell_a_lost_engine_by_a_named_event(path: str) -> None:
    async with stage(stream(b'event: x\ndata: {"type":"x"}\n\n')) as s:
        wire = await s.connect(b'{"model":"a","stream":true}', path)
        whole = await wire.rest()
        assert b'\nevent: error\ndata: {"type": "error", "error": {"message": ' in whole
        assert not whole.endswith(b"0\r\n\r\n")
        assert s.finished[0].outcome == "upstream_lost"


async def test_a_stream_is_not_held_back_by_a_proxy_in_front() -> None:
    async with stage(stream(b"data: [DONE]\n\n")) as s:
        response, _ = await s.post(stream=True)
        assert response.headers["X-Accel-Buffering"] == "no"


async def test_an_error_has_the_outer_fields_of_every_protocol() -> None:
    async with stage(json_reply(REPLY)) as s:
        response, body = await s.post("/v1/messages", model="nobody")
        assert response.status == 404
        parsed = json.loads(body)
        assert (parsed["type"], parsed["src"]) == ("error", "mtpd")
        assert parsed["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("path", [CHAT, f"/upstream/a{CHAT}"])
@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"id_slot": 0}', "id_slot"),
        (b'{"grammar": "' + b"(" * 20_000 + b'"}', "grammar"),
        (b'{"model": "a", "model": "b"}', "model"),
    ],
)
async def test_what_would_misuse_an_engine_never_reaches_it(
    path: str, body: bytes, param: str
) -> None:
    async with stage(json_reply(REPLY)) as s:
        response, told = await s.post(path, data=body)
        assert response.status == 400
        error = json.loads(told)["error"]
        assert (error["code"], error["param"]) == ("invalid_body", param)
        assert s.engine.seen == []


async def test_the_daemons_own_user_may_send_an_engine_anything() -> None:
    async with stage(json_reply(REPLY)) as s:
        s.owned.append("yes")
        response, _ = await s.post(f"/upstream/a{CHAT}", data=b'{"id_slot": 0}')
        assert response.status == 200
        assert s.engine.seen[0].body == b'{"id_slot": 0}'
