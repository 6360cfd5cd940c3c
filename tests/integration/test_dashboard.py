"""How the dashboard is answered: headers, caching, and who gets it. What it does is in browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import aiohttp
import pytest

from mtpd.access import Scope
from mtpd.clock import SystemClock
from mtpd.store.token_file import TokenFile
from tests.fakes.house import daemon_at, home

if TYPE_CHECKING:
    from tests.fakes.house import Home

pytestmark = pytest.mark.slow


def token(place: Home, name: str, *scopes: Scope) -> dict[str, str]:
    place.directories.create()
    file = TokenFile(place.directories.state, SystemClock())
    return {"Authorization": f"Bearer {file.add(name, frozenset(scopes), expires=None)[0]}"}


async def test_every_file_that_the_page_names_is_there_and_may_be_kept() -> None:
    async with home() as place, daemon_at(place) as (_, client):
        async with client.get("/") as page:
            assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
            assert page.headers["Cache-Control"] == "no-cache"
            links = re.findall(r'(?:src|href)="(assets/[^"]+)"', await page.text())
        assert len(links) > 4
        types = {}
        for link in links:
            async with client.get(f"/{link}") as file:
                assert file.status == 200
                assert "immutable" in file.headers["Cache-Control"]
                assert file.headers["X-Content-Type-Options"] == "nosniff"
                types[link.rpartition(".")[2]] = file.headers["Content-Type"]
        assert types == {
            "css": "text/css; charset=utf-8",
            "js": "text/javascript; charset=utf-8",
            "svg": "image/svg+xml; charset=utf-8",
        }


async def test_the_page_allows_nothing_from_elsewhere() -> None:
    async with home() as place, daemon_at(place) as (_, client), client.get("/") as page:
        rules = dict(
            rule.split(" ", 1) for rule in page.headers["Content-Security-Policy"].split("; ")
        )
        assert rules["default-src"] == "'self'"
        assert rules["frame-ancestors"] == rules["object-src"] == rules["base-uri"] == "'none'"
        assert not [source for source in rules.values() if "unsafe" in source or "*" in source]


@pytest.mark.parametrize(
    ("path", "mode", "into", "status"),
    [
        ("/", "navigate", "document", 200),
        ("/", "navigate", "iframe", 403),
        ("/", "no-cors", "script", 403),
        ("/mtpd/v1/status", "navigate", "document", 403),
        ("/props?model=alpha", "navigate", "document", 403),
    ],
)
async def test_a_link_elsewhere_leads_to_the_page_and_to_nothing_else(
    path: str, mode: str, into: str, status: int
) -> None:
    browser = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": into}
    async with (
        home() as place,
        daemon_at(place) as (_, client),
        client.get(path, headers=browser) as reply,
    ):
        assert reply.status == status


async def test_who_has_a_file_is_not_sent_it_again() -> None:
    async with home() as place, daemon_at(place) as (_, client):
        async with client.get("/") as page:
            tag = page.headers["ETag"]
        async with client.get("/", headers={"If-None-Match": tag}) as page:
            assert (page.status, await page.read()) == (304, b"")
            assert page.headers["ETag"] == tag
        async with client.get("/", headers={"If-None-Match": '"other"'}) as page:
            assert page.status == 200


@pytest.mark.parametrize(
    "path", ["/assets/x/app.js", "/assets/../pages.py", "/vendor/uplot/VERSION", "/index.html"]
)
async def test_what_is_not_in_the_table_does_not_exist(path: str) -> None:
    async with home() as place, daemon_at(place) as (_, client), client.get(path) as reply:
        assert reply.status == 404


async def test_the_page_is_open_and_what_it_shows_is_not() -> None:
    async with home() as place:
        admin, read = token(place, "ops", Scope.ADMIN), token(place, "eyes", Scope.READ)
        infer = token(place, "app", Scope.INFER)
        async with daemon_at(place) as (running, client):
            async with client.get("/") as page:
                assert page.status == 200
            async with client.post("/") as page:
                assert page.status == 401, "only reading is open"
            for headers, status in (({}, 401), (infer, 403), (read, 200), (admin, 200)):
                async with client.get("/mtpd/v1/access", headers=headers) as reply:
                    assert reply.status == status
            async with client.get("/mtpd/v1/access", headers=read) as reply:
                found = await reply.json()
            assert found["actor"] == "token eyes"
            assert not found["changes"]["allowed"]
            assert "scope admin" in found["changes"]["reason"]
            assert not found["inference"]["allowed"]
            async with client.get("/mtpd/v1/access", headers=admin) as reply:
                found = await reply.json()
            assert found["changes"] == {"allowed": True, "reason": None, "hint": None}
            assert found["inference"]["allowed"]
            connector = aiohttp.UnixConnector(str(running.control_socket))
            async with aiohttp.ClientSession("http://localhost", connector=connector) as own:
                async with own.get("/") as page:
                    assert page.status == 200
                async with own.get("/mtpd/v1/access") as reply:
                    assert (await reply.json())["changes"]["allowed"]
                # A browser that was led there, e.g. by ssh -L, sends its Origin with a change.
                browser = {"Sec-Fetch-Site": "same-origin"}
                async with own.get("/mtpd/v1/access", headers=browser) as reply:
                    told = (await reply.json())["changes"]
                assert not told["allowed"]
                sent = {**browser, "Origin": "http://localhost"}
                async with own.post("/mtpd/v1/unload", json={}, headers=sent) as reply:
                    assert (await reply.json())["detail"] == told["reason"]


async def test_without_tokens_a_page_reads_and_uses_the_models_but_changes_nothing() -> None:
    async with home() as place, daemon_at(place) as (_, client):
        async with client.get("/mtpd/v1/access") as reply:
            found = await reply.json()
        assert found["actor"] is None
        assert found["inference"]["allowed"]
        assert not found["changes"]["allowed"]
        assert "control socket" in found["changes"]["hint"]
        async with client.get("/", headers={"Host": "evil.example"}) as page:
            assert page.status == 421
