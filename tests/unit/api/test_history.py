"""``GET /mtpd/v1/history``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from mtpd.api.routes import PREFIX
from mtpd.views import encode
from tests.fakes import devices
from tests.fakes.backend import ScriptedBackend, Served, serving

if TYPE_CHECKING:
    from pathlib import Path


async def asked(served: Served, query: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{served.port}{PREFIX}/history{query}"
        async with session.get(url) as response:
            return response.status, await response.json()


async def test_without_a_wish_an_hour_of_everything(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    async with serving(backend, tmp_path / "s") as served:
        assert await asked(served, "") == (200, encode(devices.history()))
    assert backend.calls == [("history", {"metrics": None, "since_s": 3600.0, "step_s": 10.0})]


async def test_a_wish_is_passed_on(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    async with serving(backend, tmp_path / "s") as served:
        query = "?metrics=power_w,%20edge_c&since_s=600.5&step_s=60"
        status, body = await asked(served, query)
    assert (status, [one["metric"] for one in body["series"]]) == (200, ["power_w", "edge_c"])
    expected = {"metrics": ["edge_c", "power_w"], "since_s": 600.5, "step_s": 60.0}
    assert backend.calls == [("history", expected)]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("?metrics=power", "metrics: there is no 'power'; there are decode_tps, "),
        ("?since_s=9", "since_s: "),
        ("?since_s=86401", "since_s: "),
        ("?step_s=0", "step_s: "),
        ("?step_s=nan", "step_s: "),
        ("?device=x", "device: "),
    ],
)
async def test_what_cannot_be_is_refused(query: str, told: str, tmp_path: Path) -> None:
    async with serving(ScriptedBackend(), tmp_path / "s") as served:
        status, body = await asked(served, query)
    assert status == 400
    assert body["detail"].startswith(told)
