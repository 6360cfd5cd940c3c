"""The control API over a real control socket and a real loopback port."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import aiohttp
import anyio
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from mtpd.api.routes import PREFIX, ROUTES
from mtpd.api.row import MAX_BODY
from mtpd.errors import StoreError
from mtpd.events import Envelope, OperationChanged
from mtpd.units import Seq
from mtpd.views import OperationView, encode
from tests.fakes import views
from tests.fakes.backend import ScriptedBackend, Served, serving

if TYPE_CHECKING:
    from pathlib import Path

SWITCH = {"model": views.QWEN}
OURS = "GET /mtpd/v1/status HTTP/1.1\r\nHost: localhost:PORT\r\n"


class Asker:
    """Asks a served daemon and takes the answer apart."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self._base = base

    async def __call__(
        self, method: str, path: str, **options: Any
    ) -> tuple[int, Any, aiohttp.ClientResponse]:
        async with self._session.request(method, self._base + path, **options) as response:
            text = await response.text()
            return response.status, json.loads(text) if text else None, response


async def over_socket(served: Served, method: str, path: str, **options: Any) -> Any:
    connector = aiohttp.UnixConnector(str(served.socket))
    async with aiohttp.ClientSession(connector=connector) as session:
        return await Asker(session, "http://localhost")(method, path, **options)


async def over_tcp(served: Served, method: str, path: str, **options: Any) -> Any:
    async with aiohttp.ClientSession() as session:
        return await Asker(session, f"http://127.0.0.1:{served.port}")(method, path, **options)


async def raw(served: Served, head: str) -> int:
    """Send a request head as it is; the status of the answer."""
    async with await anyio.connect_tcp("127.0.0.1", served.port) as stream:
        await stream.send(head.replace("PORT", str(served.port)).encode())
        with anyio.fail_after(5):
            answer = await stream.receive()
    return int(answer.split()[1])


READS: dict[str, Any] = {
    "/status": encode(views.status()),
    "/models": encode({"models": (views.model(), views.unmeasured_model())}),
    f"/models/{views.QWEN}": encode(views.model()),
    "/models/default": encode(views.model()),
    "/operations": {"operations": []},
    "/decisions": encode({"decisions": (views.decision(17), views.decision(16))}),
    "/decisions/16": encode(views.decision(16)),
    "/decisions?subject=nobody": {"decisions": []},
    "/config": encode({"config": views.config_values()}),
}


@pytest.mark.parametrize("path", READS)
async def test_a_read_answers_the_view_over_both_transports(path: str, tmp_path: Path) -> None:
    async with serving(ScriptedBackend(), tmp_path / "s") as served:
        for ask in (over_socket, over_tcp):
            status, body, response = await ask(served, "GET", PREFIX + path)
            assert (status, body) == (200, READS[path])
            assert response.content_type == "application/json"
            assert response.headers["Cache-Control"] == "no-store"


async def test_members_come_in_the_declared_order(tmp_path: Path) -> None:
    async with serving(ScriptedBackend(), tmp_path / "s") as served:
        _, body, _ = await over_tcp(served, "GET", f"{PREFIX}/status")
    assert list(body)[:4] == ["version", "pid", "started_at", "uptime_s"]


async def test_an_accepted_operation_answers_202_with_its_place(tmp_path: Path) -> None:
    async with serving(ScriptedBackend(), tmp_path / "s") as served:
        status, body, response = await over_socket(
            served, "POST", f"{PREFIX}/switch", json={**SWITCH, "depth": 1}
        )
        assert status == 202
        assert body["state"] == "queued"
        assert response.headers["Location"] == f"{PREFIX}/operations/{body['id']}"
        place = response.headers["Location"]
        async with served.backend.bus.subscribe(Seq(0)) as changes:
            with anyio.fail_after(5):
                async for change in changes:
                    match change:
                        case Envelope(
                            event=OperationChanged(operation=OperationView(state="done"))
                        ):
                            break
                        case _:
                            pass
        assert (await over_socket(served, "GET", place))[1]["state"] == "done"
        assert served.backend.calls == [
            ("switch", {"model": views.QWEN, "depth": 1, "force": False})
        ]


@pytest.mark.parametrize(
    ("path", "body", "params"),
    [
        ("load", SWITCH, SWITCH),
        ("unload", None, {"model": None}),
        ("probe", SWITCH, {**SWITCH, "depth": 2}),
        (
            "tune",
            {
                "subject": "default",
                "method": "sweep",
                "depths": [0, 1],
                "max_minutes": 2.5,
                "apply": False,
            },
            {
                "subject": "default",
                "method": "sweep",
                "depths": [0, 1],
                "workloads": None,
                "prompts": None,
                "repetitions": None,
                "max_tokens": None,
                "max_starts": None,
                "max_cells": None,
                "max_minutes": 2.5,
                "max_joules": None,
                "apply": False,
            },
        ),
    ],
)
async def test_each_operation_reaches_the_backend_as_asked(
    path: str, body: object, params: object, tmp_path: Path
) -> None:
    async with serving(ScriptedBackend(), tmp_path / "s") as served:
        options = {} if body is None else {"json": body}
        status, _, _ = await over_socket(served, "POST", f"{PREFIX}/{path}", **options)
        assert status == 202
        assert served.backend.calls == [(path, params)]


async def test_the_same_key_starts_one_operation(tmp_path: Path) -> None:
    async with serving(ScriptedBackend(), tmp_path / "s") as served:

        async def switch(**body: object) -> tuple[int, Any, Any]:
            return await over_socket(  # type: ignore[no-any-return]  # JSON
                served,
                "POST",
                f"{PREFIX}/switch",
                json={**SWITCH, **body},
                headers={"Idempotency-Key": "k-1"},
            )

        first, again, other = await switch(), await switch(), await switch(depth=1)
        assert first[1]["id"] == again[1]["id"]
        assert (other[0], other[1]["type"]) == (409, "urn:mtpd:problem:conflict")
        assert len(served.backend.calls) == 1


@pytest.mark.parametrize("key", ["", "a b", "x" * 129, "é"])
async def test_a_key_that_cannot_be_stored_is_refused(key: str, tmp_path: Path) -> None:
    async with serving(ScriptedBackend(), tmp_path / "s") as served:
        status, body, _ = await over_socket(
            served, "POST", f"{PREFIX}/switch", json=SWITCH, headers={"Idempotency-Key": key}
        )
        assert (status, body["type"]) == (400, "urn:mtpd:problem:invalid-idempotency-key")
        assert served.backend.calls == []


async def test_an_operation_is_cancelled_and_stays_so(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    backend.held = {"tune"}
    async with serving(backend, tmp_path / "s") as served:
        _, begun, _ = await over_socket(
            served, "POST", f"{PREFIX}/tune", json={"subject": "default"}
        )
        path = f"{PREFIX}/operations/{begun['id']}"
        for _ in range(2):
            status, body, _ = await over_socket(served, "DELETE", path)
            assert (status, body["state"]) == (200, "cancelled")


async def test_measurements_are_filtered_by_the_backend(tmp_path: Path) -> None:
    async with serving(ScriptedBackend(), tmp_path / "s") as served:
        query = "model=default&depth=2&workload=short&operation=op-1&id=2&id=3&limit=1"
        status, body, _ = await over_tcp(served, "GET", f"{PREFIX}/measurements?{query}")
        assert status == 200
        assert [one["id"] for one in body["measurements"]] == [2]
        assert served.backend.calls[-1][1] == {
            "model": "default",
            "depth": 2,
            "workload": "short",
            "operation_id": "op-1",
            "ids": (2, 3),
            "limit": 1,
        }


async def test_a_decision_is_explained_with_all_that_it_stands_on(tmp_path: Path) -> None:
    async with serving(ScriptedBackend(), tmp_path / "s") as served:
        _, latest, _ = await over_tcp(served, "GET", f"{PREFIX}/explain")
        _, named, _ = await over_tcp(served, "GET", f"{PREFIX}/explain?id=16&subject=default")
        assert list(latest) == [
            *("decision", "models", "rows", "measurements", "rule", "replay", "chain"),
        ]
        assert latest["models"][0]["asks"][0]["reason"].startswith("depth 3 is where")
        assert latest["replay"]["state"] == "same"
        assert (latest["decision"]["id"], named["decision"]["id"]) == (17, 16)


@pytest.mark.parametrize(
    ("method", "path", "status", "slug"),
    [
        ("GET", "/models/nobody", 404, "not-found"),
        ("GET", "/operations/op-none", 404, "not-found"),
        ("DELETE", "/operations/op-none", 404, "not-found"),
        ("GET", "/decisions/99", 404, "not-found"),
        ("GET", "/decisions/latest", 404, "not-found"),
        ("GET", "/explain?id=99", 404, "not-found"),
        ("GET", "/nothing", 404, "not-found"),
        ("PUT", "/switch", 405, "method-not-allowed"),
        ("GET", "/switch", 405, "method-not-allowed"),
        ("GET", "/operations?limit=x", 400, "invalid-query"),
        ("GET", "/status?verbose=1", 400, "invalid-query"),
        ("DELETE", "/operations/op-none?force=1", 400, "invalid-query"),
    ],
)
async def test_a_refusal_is_a_problem_document(
    method: str, path: str, status: int, slug: str, tmp_path: Path
) -> None:
    async with serving(ScriptedBackend(), tmp_path / "s") as served:
        got, body, response = await over_socket(served, method, PREFIX + path)
        assert (got, body["type"]) == (status, f"urn:mtpd:problem:{slug}")
        assert body["status"] == status
        assert body["detail"]
        assert response.content_type == "application/problem+json"
        assert ("Allow" in response.headers) == (status == 405)


@pytest.mark.parametrize(
    ("body", "status", "slug"),
    [
        (b"{", 400, "invalid-json"),
        (b'{"model": 1, "x": 2}', 422, "invalid-body"),
        (b'{"model": "nobody"}', 404, "not-found"),
        (b'{"model": "default", "depth": 9}', 422, "invalid-request"),
    ],
)
async def test_a_body_that_cannot_be_used_starts_nothing(
    body: bytes, status: int, slug: str, tmp_path: Path
) -> None:
    async with serving(ScriptedBackend(), tmp_path / "s") as served:
        got, problem, _ = await over_socket(
            served,
            "POST",
            f"{PREFIX}/switch",
            data=body,
            headers={"Content-Type": "application/json"},
        )
        assert (got, problem["type"]) == (status, f"urn:mtpd:problem:{slug}")
        assert served.backend.calls == []


async def test_a_body_of_another_type_is_refused(tmp_path: Path) -> None:
    async with serving(ScriptedBackend(), tmp_path / "s") as served:
        for headers in ({"Content-Type": "text/plain"}, {}):
            status, body, _ = await over_socket(
                served, "POST", f"{PREFIX}/switch", data=b'{"model": "default"}', headers=headers
            )
            assert (status, body["type"]) == (415, "urn:mtpd:problem:unsupported-media-type")
        status, _, _ = await over_socket(
            served,
            "POST",
            f"{PREFIX}/switch",
            data=b'{"model": "default"}',
            headers={"Content-Type": "application/json; charset=utf-8"},
        )
        assert status == 202


async def test_a_body_without_bound_is_refused(tmp_path: Path) -> None:
    async with serving(ScriptedBackend(), tmp_path / "s") as served:
        status, body, _ = await over_socket(
            served,
            "POST",
            f"{PREFIX}/switch",
            data=b" " * (MAX_BODY + 1),
            headers={"Content-Type": "application/json"},
        )
        assert (status, body["status"]) == (413, 413)


@pytest.mark.parametrize("route", [r for r in ROUTES if r.method != "GET"], ids=lambda r: r.path)
async def test_no_change_is_taken_over_tcp(route: Any, tmp_path: Path) -> None:
    async with serving(ScriptedBackend(), tmp_path / "s") as served:
        path = route.path.replace("{id}", "op-0001")
        status, body, _ = await over_tcp(served, route.method, path, json=SWITCH)
        assert (status, body["type"]) == (403, "urn:mtpd:problem:control-socket-only")
        assert "mtpctl" in body["hint"]
        assert served.backend.calls == []


async def test_a_foreign_uid_is_refused_on_the_control_socket(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    # Root is always admitted, so the test cannot be seen to fail where it runs as root.
    async with serving(backend, tmp_path / "s", uid=54321) as served:
        status, _, _ = await over_socket(served, "POST", f"{PREFIX}/switch", json=SWITCH)
        assert status == (202 if os.getuid() == 0 else 403)


CLIENT = """
import os, socket, sys
os.chdir(sys.argv[1])
os.setgroups([int(sys.argv[2])])
os.setgid(65534)
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as sock:
    sock.connect("s")
    sock.sendall(b"GET /mtpd/v1/status HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n")
    print(sock.recv(12).decode())
"""


async def test_the_kernel_tells_the_groups_of_a_peer(tmp_path: Path) -> None:
    # Only root can be another user; anybody else is in the groups that it is in.
    root, other = os.getuid() == 0, 4242
    mine = other if root else os.getgid()
    for gid, admitted in ((mine, True), (other + 1, False)):
        async with serving(ScriptedBackend(), tmp_path / "s", uid=54321, gid=gid) as served:
            if not root:
                status, _, _ = await over_socket(served, "GET", f"{PREFIX}/status")
                assert status == (200 if admitted else 403)
                continue
            for place in (tmp_path, tmp_path / "s"):
                place.chmod(0o777)
            argv = (sys.executable, "-I", "-c", CLIENT, str(tmp_path), str(other))
            ran = await anyio.run_process(argv)
            assert ran.stdout.split()[1] == (b"200" if admitted else b"403")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /mtpd/v1/status HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", 200),
        ("GET /mtpd/v1/status HTTP/1.1\r\nHost: LOCALHOST:PORT\r\n\r\n", 200),
        ("GET /mtpd/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n", 421),
        ("GET /mtpd/v1/status HTTP/1.1\r\nHost: evil.example:PORT\r\n\r\n", 421),
        ("GET /mtpd/v1/status HTTP/1.0\r\n\r\n", 421),
        ("GET http://localhost:PORT/mtpd/v1/status HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", 200),
        ("GET http://evil.example/mtpd/v1/status HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", 421),
        ("GET http://localhost:PORT/mtpd/v1/status HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        ("GET /mtpd/v1/status HTTP/1.1\r\nHost: localhost:PORT\r\nOrigin: null\r\n\r\n", 403),
        (f"{OURS}Origin: http://localhost:PORT\r\n\r\n", 200),
        (f"{OURS}Origin: http://localhost:PORT\r\nOrigin: http://evil.example\r\n\r\n", 403),
        (f"{OURS}Sec-Fetch-Site: cross-site\r\n\r\n", 403),
        (f"{OURS}Sec-Fetch-Site: same-origin\r\nSec-Fetch-Site: cross-site\r\n\r\n", 403),
        ("GET /%6dtpd/v1/status HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        ("POST /mtpd%2Fv1/switch HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", 403),
        ("POST /%6dtpd/v1/unload HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", 403),
        ("POST /mtpd/v1/unload HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n", 403),
        ("POST /v1/echo HTTP/1.1\r\nHost: localhost:PORT\r\nContent-Length: 0\r\n\r\n", 200),
        ("POST /v1/echo HTTP/1.1\r\nHost: localhost:PORT\r\nOrigin: null\r\n\r\n", 403),
        ("POST /v1/echo HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n", 421),
    ],
)
async def test_names_and_origins_are_checked_on_the_wire(
    head: str, status: int, tmp_path: Path
) -> None:
    async def echo(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    def add(app: web.Application) -> None:
        app.router.add_post("/v1/echo", echo)

    async with serving(ScriptedBackend(), tmp_path / "s", add=add) as served:
        assert await raw(served, head) == status
        assert served.backend.calls == []


async def test_a_fault_of_the_daemon_is_logged_and_says_nothing_of_its_insides(
    tmp_path: Path,
) -> None:
    backend = ScriptedBackend()
    backend.broken = RuntimeError("secret")
    async with serving(backend, tmp_path / "s") as served:
        with capture_logs() as logs:
            status, body, _ = await over_tcp(served, "GET", f"{PREFIX}/status")
        assert (status, body["type"]) == (500, "urn:mtpd:problem:internal")
        assert "secret" not in json.dumps(body)
        assert [entry["event"] for entry in logs] == ["api.request_crashed"]
        assert logs[0]["exc_info"]


async def test_a_known_error_keeps_its_sentence_and_hint(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    backend.broken = StoreError("The disk is full.", hint="Make room.")
    async with serving(backend, tmp_path / "s") as served:
        with capture_logs() as logs:
            status, body, _ = await over_tcp(served, "GET", f"{PREFIX}/status")
        assert (status, body["detail"], body["hint"]) == (500, "The disk is full.", "Make room.")
        assert [entry["event"] for entry in logs] == ["api.request_failed"]


@pytest.mark.parametrize("kind", [StoreError, RuntimeError])
async def test_an_error_after_the_first_byte_begins_no_second_answer(
    kind: type[Exception], tmp_path: Path
) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        message = "lost"
        raise kind(message)

    def add(app: web.Application) -> None:
        app.router.add_get("/v1/broken", broken)

    async with serving(ScriptedBackend(), tmp_path / "s", add=add) as served:
        head = b"GET /v1/broken HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % served.port
        async with await anyio.connect_tcp("127.0.0.1", served.port) as stream:
            await stream.send(head)
            received = b""
            with anyio.fail_after(5):
                async for chunk in stream:
                    received += chunk
        assert received.count(b"HTTP/1.1 ") == 1
        assert b"half" in received
        assert not received.endswith(b"0\r\n\r\n"), "a truncated answer must not look whole"


async def test_a_handlers_own_json_refusal_passes_unchanged(tmp_path: Path) -> None:
    async def refuse(_request: web.Request) -> web.Response:
        raise web.HTTPServiceUnavailable(
            text='{"error": {"message": "busy"}}', content_type="application/json"
        )

    def add(app: web.Application) -> None:
        app.router.add_get("/v1/busy", refuse)

    async with serving(ScriptedBackend(), tmp_path / "s", add=add) as served:
        status, body, _ = await over_tcp(served, "GET", "/v1/busy")
        assert (status, body) == (503, {"error": {"message": "busy"}})


@pytest.mark.parametrize(
    ("states", "status"),
    [((), 200), (("ready",), 200), (("stopped",), 200), (("failed", "ready"), 200),
     (("loading",), 503), (("failed",), 503), (("wedged", "stopped"), 503)],
)  # fmt: skip
async def test_readiness_follows_the_engines(
    states: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    backend = ScriptedBackend()
    engines = tuple(
        dataclasses.replace(views.engine(state), id=f"e-{number}")
        for number, state in enumerate(states)
    )
    backend.view = dataclasses.replace(backend.view, engines=engines)
    async with serving(backend, tmp_path / "s") as served:
        got, body, _ = await over_tcp(served, "GET", "/readyz")
        assert (got, body["ready"]) == (status, status == 200)
        assert sorted(body["engines"].values()) == sorted(states)
        assert (await over_tcp(served, "GET", "/healthz"))[:2] == (200, {"status": "ok"})


async def test_metrics_are_mounted_where_a_handler_is_given(tmp_path: Path) -> None:
    async def metrics(_request: web.Request) -> web.Response:
        return web.json_response({"up": 1})

    async with serving(ScriptedBackend(), tmp_path / "s", metrics=metrics) as served:
        assert (await over_tcp(served, "GET", "/metrics"))[:2] == (200, {"up": 1})
    async with serving(ScriptedBackend(), tmp_path / "t") as served:
        assert (await over_tcp(served, "GET", "/metrics"))[0] == 404
