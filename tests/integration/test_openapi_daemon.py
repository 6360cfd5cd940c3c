"""Every answer of a running daemon is as its description says, with nothing beside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import aiohttp
import anyio
import pytest

from mtpd.api.routes import PREFIX, ROUTES
from mtpd.cli.decode import decode
from mtpd.views import OperationView, encode
from tests.fakes.house import daemon_at, home, run_operation
from tests.fakes.script import Script
from tests.unit.api.described import (
    STRICT,
    against,
    event_misfits,
    misfits,
    path_of,
    result_misfits,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mtpd.app import Daemon

pytestmark = pytest.mark.slow
SHORT: dict[str, Any] = {
    "method": "sweep",
    "depths": [0, 1],
    "workloads": ["short"],
    "prompts": 1,
    "repetitions": 1,
    "max_tokens": 8,
}


async def prepare(running: Daemon, subject: str) -> dict[str, str]:
    """Measure, decide and serve, so that the answers are not empty; what each ``{id}`` may be."""
    connector = aiohttp.UnixConnector(str(running.control_socket))
    async with aiohttp.ClientSession("http://localhost", connector=connector) as owner:
        tuned = await order(owner, running, "/tune", {"subject": subject, **SHORT})
        for path, body in (
            ("/load", {"model": "alpha"}),
            ("/switch", {"model": "alpha", "depth": 1}),
            ("/reload", {}),
            ("/unload", {}),
            ("/load", {"model": "alpha"}),
        ):
            await order(owner, running, path, body)
        _, _, made = await asked(owner, f"{PREFIX}/decisions", params={"subject": subject})
    return {
        f"{PREFIX}/models/{{id}}": "first",
        f"{PREFIX}/operations/{{id}}": tuned,
        f"{PREFIX}/decisions/{{id}}": str(made["decisions"][0]["id"]),
    }


async def order(owner: aiohttp.ClientSession, running: Daemon, path: str, body: Any) -> str:
    """Start an operation and wait until it is done; its id."""
    async with owner.post(PREFIX + path, json=body) as answer:
        operation = await answer.json()
        route = next(r for r in ROUTES if (r.method, r.path) == ("POST", PREFIX + path))
        assert misfits(route, answer.status, answer.content_type, operation) == []
    ended = await run_operation(running, decode(OperationView, operation))
    assert ended.state == "done", ended
    assert result_misfits(ended.kind, encode(ended.result)) == []
    return ended.id


async def asked(client: aiohttp.ClientSession, path: str, **options: Any) -> tuple[int, str, Any]:
    async with client.get(path, **options) as answer:
        return answer.status, answer.content_type, await answer.json(content_type=None)


async def test_every_answer_to_a_read_is_as_described() -> None:
    async with home(Script()) as place, daemon_at(place) as (running, client):
        ids = await prepare(running, "both")
        unusual: dict[str, int] = {}
        for route in ROUTES:
            path = path_of(route)
            if route.method != "GET" or path.endswith("/events"):
                continue
            query: dict[str, str] = (
                {"base": "alpha", "variant": "beta"} if "comparison" in path else {}
            )
            if path.endswith("/recipes/b2"):
                query = {"model": "alpha"}
            status, kind, body = await asked(
                client, path.replace("{id}", ids.get(path, "")), params=query
            )
            assert misfits(route, status, kind, body) == [], path
            if status != 200:
                unusual[path] = status
            elif isinstance(body, dict) and len(body) == 1 and "quarantine" not in body:
                [(name, value)] = body.items()
                assert value or name in {"perplexities", "baselines", "status"}, path
        # No perplexity is stored, and the tiny model's file is no candidate for the recipe.
        assert set(unusual) <= {f"{PREFIX}/perplexity/comparison", f"{PREFIX}/recipes/b2"}


async def test_a_refusal_is_as_described() -> None:
    async with home(Script()) as place, daemon_at(place) as (_running, client):
        for path, query in (
            ("/models/nobody", {}),
            ("/status", {"more": "1"}),
            ("/measurements", {"limit": "0"}),
            ("/decisions", {"subject": "nobody"}),
            ("/explain", {"id": "1"}),
            ("/operations/nothing", {}),
        ):
            found = [r for r in ROUTES if r.method == "GET" and _fits(path_of(r), PREFIX + path)]
            status, kind, body = await asked(client, PREFIX + path, params=query)
            assert status >= 400, path
            assert misfits(found[0], status, kind, body) == [], path


def _fits(described: str, path: str) -> bool:
    return described == path or described == f"{path.rpartition('/')[0]}/{{id}}"


async def test_the_daemon_answers_its_own_description() -> None:
    async with home(Script()) as place, daemon_at(place) as (_running, client):
        _, _, body = await asked(client, f"{PREFIX}/openapi.json")
        assert set(body["paths"]) == set(STRICT["paths"])
        async with client.get("/metrics") as answer:
            told = STRICT["paths"]["/metrics"]["get"]["responses"]["200"]["content"]
            assert (answer.status, answer.content_type in told) == (200, True)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/chat/completions", b'{"model": "alpha", "messages": []}', 200),
        ("POST", "/v1/chat/completions", b'{"model": "nobody"}', 404),
        ("POST", "/v1/completions", b'{"n": 1, "n": 2}', 400),
        ("POST", "/v1/messages", b'{"model": "auto:none"}', 404),
        ("GET", "/v1/models", None, 200),
        ("GET", "/models?reload=1", None, 403),
        ("GET", "/health", None, 200),
        ("GET", "/props?model=alpha", None, 200),
        ("GET", "/props?model=nobody", None, 404),
    ],
)
async def test_what_an_inference_endpoint_adds_is_as_described(
    method: str, path: str, body: bytes | None, status: int
) -> None:
    async with home(Script()) as place, daemon_at(place) as (_running, client):
        headers = {"Content-Type": "application/json"}
        async with client.request(method, path, data=body, headers=headers) as answer:
            data = await answer.json()
    told = STRICT["paths"][path.partition("?")[0]][method.lower()]["responses"][str(status)]
    assert (answer.status, answer.content_type in told["content"]) == (status, True), data
    assert against(told["content"][answer.content_type].get("schema", {}), data) == []
    for name in told.get("headers", {}):
        assert name in answer.headers


async def test_every_event_is_as_described() -> None:
    async with home(Script()) as place, daemon_at(place) as (running, client):
        await prepare(running, "alpha")
        seen: set[str] = set()
        async with client.get(f"{PREFIX}/events", headers={"Last-Event-ID": "0"}) as stream:
            with anyio.fail_after(20):
                async for kind, data in events_of(stream):
                    assert event_misfits(kind, data) == []
                    seen.add(kind)
                    if data.get("seq") == running.bus.seq and kind != "stream.open":
                        break
        assert {"stream.open", "engine.transition", "decision.made", "measurement.taken"} <= seen
        assert {"operation.changed", "residency.judged"} <= seen


async def test_every_part_of_the_log_is_as_described() -> None:
    path = f"{PREFIX}/logs"
    async with home(Script()) as place, daemon_at(place) as (running, client):
        await prepare(running, "alpha")
        seen: set[str] = set()
        async with client.get(path, params={"follow": "true", "after": "0"}) as stream:
            with anyio.fail_after(20):
                async for kind, data in events_of(stream):
                    assert event_misfits(kind, data, path=path) == []
                    seen.add(kind)
                    if kind == "log.lines":
                        break
        assert seen == {"stream.open", "log.lines"}


async def events_of(stream: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    kind = ""
    async for raw in stream.content:
        name, _, value = raw.decode().rstrip("\r\n").partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)
