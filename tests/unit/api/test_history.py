"""``GET /mtpd/v1/history``."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mtpd.api.routes import PREFIX
from mtpd.control.history import SERIES
from mtpd.history_views import UNITS
from mtpd.log_views import ABOUT
from mtpd.series import RINGS, Ring
from mtpd.views import encode
from tests.fakes import devices
from tests.fakes.backend import ScriptedBackend, Served, serving

HTTP = (Path(__file__).parents[3] / "docs" / "http_api.md").read_text(encoding="utf-8")


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


def test_the_documentation_has_every_metric_with_its_unit_and_the_bounds() -> None:
    part = HTTP[HTTP.index("## The last hours") : HTTP.index("## Models")]
    rows = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \| (\S+) \|", part, re.MULTILINE)
    told = {name: unit for names, unit in rows for name in re.findall(r"[a-z_]+", names)}
    assert told == UNITS
    rings = [Ring(step_s, size) for step_s, size in RINGS]
    held = sum(
        len(kept) * kept.itemsize
        for ring in rings
        for kept in (ring._weight, ring._mean, ring._low, ring._high)
    )
    assert f"{SERIES} series of {math.ceil(held / 1024)} KiB" in " ".join(part.split())


def test_the_documentation_has_everything_that_a_line_is_evidence_of() -> None:
    part = HTTP[HTTP.index("| `about` | lines that say |") : HTTP.index("The last 1000 lines")]
    assert re.findall(r"^\| `([a-z]+)` \| ", part, re.MULTILINE) == ["about", *ABOUT]
