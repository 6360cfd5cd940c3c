"""An engine answers its daemon, and nobody else who reaches its socket."""

from __future__ import annotations

import aiohttp
import pytest

from tests.fakes.house import daemon_at, home, write_config

ASKED = {"model": "alpha", "prompt": "x", "n_predict": 4}


@pytest.mark.slow
@pytest.mark.parametrize("binary", ["scripted", "embedded"])
async def test_an_engine_asks_everybody_else_for_its_key(binary: str) -> None:
    async with home() as place:
        if binary == "embedded":
            write_config(place, binary="embedded")
        async with daemon_at(place) as (_, client):
            async with client.post("/completion", json=ASKED) as reply:
                assert reply.status == 200, await reply.text()
            (path,) = place.directories.runtime.rglob(f"{'?' * 12}.sock")
            connector = aiohttp.UnixConnector(str(path))
            async with aiohttp.ClientSession("http://localhost", connector=connector) as other:
                for headers in ({}, {"Authorization": f"Bearer {path.stem}"}):
                    async with other.post("/completion", json=ASKED, headers=headers) as reply:
                        assert reply.status == 401
                    async with other.get("/slots", headers=headers) as reply:
                        assert reply.status == 401
