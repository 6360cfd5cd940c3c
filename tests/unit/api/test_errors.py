"""Errors in the shape that the clients of a path know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import aiohttp
import pytest

from mtpd.api.errors import is_inference
from mtpd.proxy.endpoints import ENDPOINTS, FORMS
from tests.fakes.backend import ScriptedBackend, serving
from tests.unit.api.test_http import over_tcp

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import web


def add(app: web.Application) -> None:
    async def fails(_request: web.Request) -> web.Response:
        raise ValueError

    app.router.add_post("/v1/completions", fails)


FAULT = (
    "The daemon met an error that it did not expect while answering this request. "
    "The daemon's log has the traceback; please report it."
)


@pytest.mark.parametrize(
    ("ask", "status", "code", "message"),
    [
        (
            *("GET /v1/nothing", 404, "not_found"),
            "There is nothing at /v1/nothing. docs/data_plane.md lists the paths.",
        ),
        (
            *("DELETE /v1/completions", 405, "method_not_allowed"),
            "/v1/completions takes POST, not DELETE.",
        ),
        ("POST /v1/completions", 500, "internal", FAULT),
    ],
)
async def test_clients_of_the_inference_endpoints_get_openais_errors(
    ask: str, status: int, code: str, message: str, tmp_path: Path
) -> None:
    method, path = ask.split()
    async with (
        serving(ScriptedBackend(), tmp_path / "s", add=add) as served,
        aiohttp.ClientSession(f"http://127.0.0.1:{served.port}") as session,
        session.request(method, path) as response,
    ):
        text = await response.text()
        assert text.endswith("}\n")
        assert (response.status, json.loads(text)["error"]) == (
            status,
            {
                "message": message,
                "type": "server_error" if status == 500 else "invalid_request_error",
                "code": code,
                "param": None,
            },
        )
        assert response.headers.get("Allow") == ("POST" if status == 405 else None)


@pytest.mark.parametrize("path", ["/mtpd/v1/nothing", "/nothing", "/running/x"])
async def test_everybody_else_gets_problem_documents(path: str, tmp_path: Path) -> None:
    async with serving(ScriptedBackend(), tmp_path / "s", add=add) as served:
        status, body, _ = await over_tcp(served, "GET", path)
        assert (status, body["type"].rsplit(":", 1)[-1].rsplit("/", 1)[-1]) == (404, "not-found")


@pytest.mark.parametrize("ask", ["POST /api/chat", "GET /api/tags"])
async def test_clients_of_ollama_are_told_what_to_set(ask: str, tmp_path: Path) -> None:
    method, path = ask.split()
    async with serving(ScriptedBackend(), tmp_path / "s", add=add) as served:
        status, body, _ = await over_tcp(served, method, path)
        assert status == 404
        assert body["hint"].startswith("Ollama's own interface is not spoken here")


def test_every_endpoint_is_one_of_inference() -> None:
    assert all(is_inference(endpoint.path) for endpoint in (*ENDPOINTS, *FORMS))
