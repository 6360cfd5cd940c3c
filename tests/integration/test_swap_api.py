"""llama-swap's and the llama.cpp router's operating endpoints, over real listeners."""

from __future__ import annotations

import dataclasses
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import anyio
import pytest

from mtpd.api import router_mode, swap
from mtpd.api.sse import StreamSettings
from mtpd.config.model import Config, ServerConfig
from mtpd.events import ConfigReloaded, DaemonStarted, EngineTransition, RequestFinished
from mtpd.logfeed import DAEMON, LogFeed
from mtpd.types import Command, EngineKey, LaunchPlan, UnixEndpoint
from mtpd.units import HOST
from tests.fakes import views
from tests.fakes.backend import ScriptedBackend, serving
from tests.fakes.board import arm
from tests.unit.control.made import profile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mtpd.views import OperationView

CHANGES = [
    ("GET", "/unload"),
    ("POST", "/api/models/unload"),
    ("POST", f"/api/models/unload/{views.QWEN}"),
    ("POST", "/models/load"),
    ("POST", "/models/unload"),
]
READS = ["/running", "/api/version", "/logs"]


SHOWN = "org/qwen"

CONFIG = Config(
    server=ServerConfig(ttl_s=600.0),
    profiles={
        views.QWEN: profile(
            views.QWEN,
            served_as=SHOWN,
            title="Qwen 27B",
            description="Thinks",
            unlisted=True,
            ttl_s=90.5,
        )
    },
)


@dataclasses.dataclass
class House:
    backend: ScriptedBackend
    feed: LogFeed
    owner: aiohttp.ClientSession
    anybody: aiohttp.ClientSession


@asynccontextmanager
async def house(tmp_path: Path) -> AsyncIterator[House]:
    backend = ScriptedBackend()
    feed = backend.lines
    plan = LaunchPlan(
        key=EngineKey(HOST, views.QWEN),
        arm=arm(views.QWEN),
        command=Command(argv=("/opt/llama server", "-c", "1"), env={"KEY": "secret"}),
        endpoint=UnixEndpoint("/run/e.sock"),
        fingerprint="",
    )
    others = (*swap.routes(feed, lambda: (plan,), CONFIG), *router_mode.routes(CONFIG))
    quick = StreamSettings(ping_s=60.0, send_timeout_s=5.0)
    async with (
        serving(backend, tmp_path / "s", others=others, stream=quick) as served,
        aiohttp.ClientSession(
            "http://localhost", connector=aiohttp.UnixConnector(str(served.socket))
        ) as owner,
        aiohttp.ClientSession(f"http://127.0.0.1:{served.port}") as anybody,
    ):
        yield House(backend, feed, owner, anybody)


def moved(new: str, profile: str = views.QWEN) -> EngineTransition:
    return EngineTransition(
        engine_id="e", profile=profile, arm="x", old="stopped", new=new, reason=""
    )


# Access -------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_what_changes_something_is_taken_on_the_control_socket_only(
    method: str, path: str, tmp_path: Path
) -> None:
    async with house(tmp_path) as h:
        async with h.anybody.request(method, path, json={"model": views.QWEN}) as response:
            assert response.status == 403
            assert (await response.json())["type"].endswith("control-socket-only")
        async with h.anybody.head(path) as response:
            assert response.status in {403, 405}
        assert h.backend.calls == []


@pytest.mark.parametrize("path", [*READS, "/logs/stream", "/api/events", "/models/sse"])
async def test_what_only_tells_answers_no_page_of_another_site(path: str, tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        for headers in ({"Host": "evil"}, {"Origin": "http://evil"}, {"Sec-Fetch-Site": "x"}):
            async with h.anybody.get(path, headers=headers) as response:
                assert response.status in {403, 421}


# llama-swap ---------------------------------------------------------------------------


async def test_running_lists_what_runs_in_llama_swaps_shape(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        engines = [
            dataclasses.replace(views.engine(state), id=state, profile=profile)
            for state, profile in (
                ("ready", views.QWEN), ("loading", "b"), ("stopping", "c"), ("failed", "d"),
                ("stopped", "e"),
            )
        ]  # fmt: skip
        h.backend.view = dataclasses.replace(h.backend.view, engines=tuple(engines))
        async with h.anybody.get("/running") as response:
            running = (await response.json())["running"]
    assert [(one["model"], one["state"]) for one in running] == [
        (SHOWN, "ready"), ("b", "starting"), ("c", "stopping"),
    ]  # fmt: skip
    assert running[0]["cmd"] == "'/opt/llama server' -c 1"
    for one in running:
        assert {"model", "state", "cmd", "proxy", "ttl", "name", "description"} <= set(one)
        assert [type(one[key]) for key in ("cmd", "proxy", "name")] == [str, str, str]
    assert [(one["ttl"], one["name"], one["description"]) for one in running] == [
        (90.5, "Qwen 27B", "Thinks"), (600, "", ""), (600, "", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "body", "model"),
    [
        ("GET", "/unload", "OK", None),
        ("POST", "/api/models/unload", '{"msg": "ok"}', None),
        ("POST", f"/api/models/unload/{views.QWEN}", "OK", views.QWEN),
    ],
)
async def test_unload_answers_once_the_engine_is_gone(
    method: str, path: str, body: str, model: str | None, tmp_path: Path
) -> None:
    async with house(tmp_path) as h:
        async with h.owner.request(method, path) as response:
            assert (response.status, await response.text()) == (200, body)
        assert h.backend.calls == [("unload", {"model": model})]
        (operation,) = await h.backend.operations(9)
        assert operation.state == "done"


async def test_an_unload_that_fails_is_not_told_as_done(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        h.backend.failing.add("unload")
        async with h.owner.get("/unload") as response:
            assert response.status == 409
            assert (await response.json())["detail"].startswith("unload: ")


async def test_unloading_a_model_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        async with h.owner.post("/api/models/unload/team/nobody") as response:
            assert response.status == 404
            assert (await response.json())["error"]["message"] == "model not found"


async def test_who_leaves_while_it_is_queued_does_not_unload_later(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        h.backend.queued.add("unload")
        with pytest.raises(TimeoutError):
            await h.owner.get("/unload", timeout=aiohttp.ClientTimeout(total=0.2))
        with anyio.fail_after(5):
            while (await unloading(h)).state == "queued":
                await anyio.lowlevel.checkpoint()
        assert (await unloading(h)).state == "cancelled"


async def unloading(h: House) -> OperationView:
    return next(one for one in await h.backend.operations(9) if one.kind == "unload")


async def test_versions_and_logs_are_plain(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        h.feed.add(DAEMON, ["d"])
        h.feed.add(views.QWEN, ["e"])
        async with h.anybody.get("/logs", headers={"Accept": "text/html"}) as response:
            assert (response.content_type, await response.text()) == ("text/plain", "d\ne\n")
        async with h.anybody.get("/api/version") as response:
            assert set(await response.json()) == {"version", "commit", "build_date"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/logs/stream", "d\ne\nd2\ne2\n"),
        ("/logs/stream/", "d\ne\nd2\ne2\n"),
        ("/logs/stream/proxy", "d\nd2\n"),
        ("/logs/stream/upstream", "e\ne2\n"),
        ("/logs/stream/default?no-history", "e2\n"),
    ],
)
async def test_the_log_stream_is_the_history_and_then_what_comes(
    path: str, expected: str, tmp_path: Path
) -> None:
    async with house(tmp_path) as h:
        h.feed.add(DAEMON, ["d"])
        h.feed.add(views.QWEN, ["e"])
        async with h.anybody.get(path) as response:
            assert response.headers["X-Accel-Buffering"] == "no"
            await followed(h.feed)
            h.feed.add(DAEMON, ["d2"])
            h.feed.add(views.QWEN, ["e2"])
            with anyio.fail_after(5):
                got = await response.content.readexactly(len(expected))
        assert got.decode() == expected
        with anyio.fail_after(5):
            while h.feed._readers:
                await anyio.lowlevel.checkpoint()


async def followed(feed: LogFeed) -> None:
    with anyio.fail_after(5):
        while not feed._readers:
            await anyio.lowlevel.checkpoint()


async def test_the_log_of_nobody_is_a_mistake(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        async with h.anybody.get("/logs/stream/nobody") as response:
            assert response.status in {400, 422}


async def event(response: aiohttp.ClientResponse) -> tuple[str, Any]:
    """The next message: its event name and its parsed data."""
    with anyio.fail_after(5):
        raw = await response.content.readuntil(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in raw.decode().strip().split("\r\n"))
    return fields.get("event", ""), json.loads(fields["data"])


async def test_events_tell_the_present_and_then_what_changes(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        h.feed.add(DAEMON, ["d"])
        async with h.anybody.get("/api/events") as response:
            assert response.content_type == "text/event-stream"
            first = [await event(response) for _ in range(6)]
            assert {name for name, _ in first} == {"message"}
            said = {body["type"]: json.loads(body["data"]) for _, body in first}
            assert set(said) == {"logData", "modelStatus", "uiConfig", "profileChanged", "inflight"}
            assert json.loads(first[0][1]["data"]) == {"source": "proxy", "data": "d\n"}
            models = {one["id"]: one for one in said["modelStatus"]}
            assert models[SHOWN]["state"] == "ready"
            assert models[SHOWN]["aliases"] == ["default", views.QWEN]
            keys = {"id", "name", "description", "state", "unlisted", "peerID", "aliases"}
            assert set(models[SHOWN]) == keys
            shown = [models[SHOWN][key] for key in ("name", "description", "unlisted")]
            assert shown == ["Qwen 27B", "Thinks", True]
            h.backend.view = dataclasses.replace(h.backend.view, engines=())
            h.backend.bus.publish(moved("stopped"))
            _, body = await event(response)
            assert body["type"] == "modelStatus"
            assert {one["state"] for one in json.loads(body["data"])} == {"stopped"}
            h.backend.bus.publish(DaemonStarted(version="1"))
            h.feed.add(views.QWEN, ["e"])
            _, body = await event(response)
            assert json.loads(body["data"]) == {"source": "upstream", "data": "e\n"}
            h.backend.bus.publish(
                RequestFinished(
                    request_id="r", profile="a", depth=0, path="/", outcome="complete",
                    status=200, duration_s=1.0,
                )
            )  # fmt: skip
            _, body = await event(response)
            assert (body["type"], json.loads(body["data"])) == ("activity", {"id": 3})
            h.backend.bus.close()
            with anyio.fail_after(5):
                assert await response.content.read() == b""


# The router ---------------------------------------------------------------------------


async def test_the_router_loads_and_unloads_and_does_not_wait(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        h.backend.held |= {"load", "unload"}
        for what in ("load", "unload"):
            async with h.owner.post(f"/models/{what}", json={"model": views.QWEN}) as response:
                assert (response.status, await response.json()) == (200, {"success": True})
            async with h.owner.post(f"/models/{what}", json={}) as response:
                assert response.status == 422
            assert h.backend.calls.pop()[0] == what
        async with h.owner.post("/models/load", json={"model": "nobody"}) as response:
            assert response.status == 404


async def test_the_routers_events_name_the_model_and_its_status_once(tmp_path: Path) -> None:
    async with house(tmp_path) as h:
        async with h.anybody.get("/models/sse") as response:
            h.backend.bus.publish(DaemonStarted(version="1"))
            for state in ("spawning", "loading", "probing", "ready", "failed"):
                h.backend.bus.publish(moved(state))
            told = [(await event(response))[1] for _ in range(3)]
    assert {one["model"] for one in told} == {SHOWN}
    assert {one["event"] for one in told} == {"status_change"}
    expected = [{"status": "loading"}, {"status": "loaded"}, {"status": "unloaded", "failed": True}]
    assert [one["data"] for one in told] == expected


async def test_a_reload_is_told_on_both_streams(tmp_path: Path) -> None:
    reloaded = ConfigReloaded(added=("new",), removed=("old",), changed=(), needs_restart=())
    async with house(tmp_path) as h:
        async with h.anybody.get("/models/sse") as router, h.anybody.get("/api/events") as swap:
            for _ in range(6):  # the present state
                await event(swap)
            h.backend.bus.publish(reloaded)
            _, told = await event(router)
            _, body = await event(swap)
    assert told == {"model": "new", "event": "status_change", "data": {"status": "unloaded"}}
    assert body["type"] == "modelStatus"
