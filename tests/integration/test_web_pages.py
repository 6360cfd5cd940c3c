"""Web pages of other origins: those that are listed use the data plane, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.access import Scope
from mtpd.clock import SystemClock
from mtpd.store.token_file import TokenFile
from tests.fakes.house import daemon_at, home

if TYPE_CHECKING:
    from tests.fakes.house import Home

pytestmark = pytest.mark.slow
UI = "https://ui.example"
PAGE = {"Origin": UI, "Sec-Fetch-Site": "cross-site"}
FIRST = {
    **PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
}
ASK = {"model": "alpha", "prompt": "x", "n_predict": 3}
ALLOWED = "Access-Control-Allow-Origin"


def listed(place: Home) -> None:
    text = place.config.read_text()
    assert "[server]\n" in text
    place.config.write_text(text.replace("[server]\n", f'[server]\ncors_origins = ["{UI}"]\n'))


async def test_a_listed_page_asks_first_and_then_reads_the_answer() -> None:
    async with home() as place:
        listed(place)
        async with daemon_at(place) as (_, client):
            async with client.options("/completion", headers=FIRST) as granted:
                assert granted.status == 204
                assert granted.headers[ALLOWED] == UI
                assert granted.headers["Access-Control-Allow-Headers"].split(",") == [
                    "authorization",
                    "content-type",
                    "x-stainless-os",
                ]
                assert "Access-Control-Allow-Credentials" not in granted.headers
            async with client.options("/upstream/alpha/completion", headers=FIRST) as granted:
                assert granted.status == 204
            for body in (ASK, {**ASK, "stream": True}):
                async with client.post("/completion", json=body, headers=PAGE) as answer:
                    assert (answer.status, answer.headers[ALLOWED]) == (200, UI)
                    assert answer.headers["Vary"] == "Origin"
                    told = {name for name in answer.headers if name.startswith("X-Mtpd-")}
                    assert {"X-Mtpd-Depth", "X-Mtpd-Why"} <= told
                    readable = answer.headers["Access-Control-Expose-Headers"].split(", ")
                    assert told <= set(readable)
                    assert await answer.read()
            async with client.post("/completion", json={"model": "no"}, headers=PAGE) as answer:
                assert (answer.status, answer.headers[ALLOWED]) == (404, UI)
            async with client.post("/completion", json=ASK) as answer:
                assert ALLOWED not in answer.headers


@pytest.mark.parametrize("path", ["/mtpd/v1/status", "/running", "/metrics"])
async def test_a_listed_page_has_no_way_into_the_control_plane(path: str) -> None:
    async with home() as place:
        listed(place)
        async with daemon_at(place) as (_, client):
            for method, headers in (("GET", PAGE), ("OPTIONS", FIRST)):
                async with client.request(method, path, headers=headers) as answer:
                    assert (answer.status, answer.content_type) == (403, "application/problem+json")
                    assert ALLOWED not in answer.headers


async def test_no_other_page_is_answered() -> None:
    async with home() as place:
        listed(place)
        async with daemon_at(place) as (_, client):
            for origin in ("https://ui.example.org", "http://ui.example", "null"):
                for method in ("POST", "OPTIONS"):
                    headers = {**FIRST, "Origin": origin}
                    async with client.request(method, "/completion", headers=headers) as answer:
                        assert (answer.status, ALLOWED in answer.headers) == (403, False)
                        error = (await answer.json())["error"]
                        assert (error["type"], error["code"]) == (
                            "permission_error",
                            "cross_origin",
                        )


async def test_a_page_needs_a_token_where_there_are_some_and_can_read_that() -> None:
    async with home() as place:
        listed(place)
        place.directories.create()
        tokens = TokenFile(place.directories.state, SystemClock())
        secret, _ = tokens.add("ui", frozenset({Scope.INFER}), expires=None)
        async with daemon_at(place) as (_, client):
            async with client.options("/completion", headers=FIRST) as granted:
                assert granted.status == 204
            async with client.post("/completion", json=ASK, headers=PAGE) as answer:
                assert (answer.status, answer.headers[ALLOWED]) == (401, UI)
            shown = {**PAGE, "Authorization": f"Bearer {secret}"}
            async with client.post("/completion", json=ASK, headers=shown) as answer:
                assert (answer.status, answer.headers[ALLOWED]) == (200, UI)
