"""llama-swap's endpoints on a whole daemon over a scripted engine."""

from __future__ import annotations

import aiohttp
import anyio
import pytest

from tests.fakes.house import daemon_at, home

pytestmark = pytest.mark.slow
ASK = {"model": "alpha", "prompt": "x", "n_predict": 3}


async def test_a_user_of_llama_swap_finds_what_they_know() -> None:
    async with home() as place, daemon_at(place) as (running, client):
        connector = aiohttp.UnixConnector(str(running.control_socket))
        async with aiohttp.ClientSession("http://localhost", connector=connector) as owner:
            async with client.get("/running") as response:
                assert await response.json() == {"running": []}
            async with client.post("/v/completions", json=ASK) as response:
                assert response.status == 404, "the scripted engine has no such path"
                assert response.headers["X-Mtpd-Profile"] == "alpha"
            async with client.post("/upstream/first/completion", json=ASK) as response:
                assert response.status == 200
            async with client.get("/running") as response:
                (shown,) = (await response.json())["running"]
            assert (shown["model"], shown["state"]) == ("alpha", "ready")
            assert "--ctx-size 2048" in shown["cmd"]
            async with client.get("/upstream/alpha/slots") as response:
                assert response.status == 403
            async with owner.get("/upstream/alpha/slots") as response:
                assert (await response.json())[0]["is_processing"] is False
            async with client.get("/props?model=alpha") as response:
                props = await response.json()
            assert props["total_slots"] == 1
            assert "model_path" not in props
            async with client.get("/logs") as response:
                assert "model loaded" in await response.text()
            async with client.get("/v1/models") as response:
                cards = {card["id"]: card for card in (await response.json())["data"]}
            assert cards["alpha"]["status"] == {"value": "loaded"}
            assert cards["both"]["meta"]["mtpd"]["context_total"] == 2048
            async with client.get("/unload") as response:
                assert response.status == 403
            async with owner.get("/unload") as response:
                assert await response.text() == "OK"
            async with client.get("/running") as response:
                assert await response.json() == {"running": []}


async def test_the_router_loads_a_model_and_tells_when_it_is_there() -> None:
    async with home() as place, daemon_at(place) as (running, client):
        connector = aiohttp.UnixConnector(str(running.control_socket))
        async with aiohttp.ClientSession("http://localhost", connector=connector) as owner:
            async with client.get("/models/sse") as news:
                async with owner.post("/models/load", json={"model": "beta"}) as response:
                    assert await response.json() == {"success": True}
                with anyio.fail_after(20):
                    told = await news.content.readuntil(b'"loaded"}}')
            assert b'{"model": "beta", "event": "status_change", "data": {"status"' in told
            async with client.get("/models") as response:
                cards = {card["id"]: card for card in (await response.json())["data"]}
            assert cards["beta"]["status"] == {"value": "loaded"}


async def test_a_request_reaches_the_engine_as_the_filters_of_its_name_make_it() -> None:
    own = "filters = { set = { n_predict = 5 }, set_by_name.first = { n_predict = 7 } }"
    async with home(alpha=own) as place, daemon_at(place) as (_, client):
        for name, tokens in (("alpha", 5), ("first", 7), ("beta", 3)):
            async with client.post("/completion", json={**ASK, "model": name}) as response:
                assert (await response.json())["tokens_predicted"] == tokens


async def test_the_routers_list_reads_the_configuration_again_for_the_owner_alone() -> None:
    async with home() as place, daemon_at(place) as (running, client):
        connector = aiohttp.UnixConnector(str(running.control_socket))
        async with aiohttp.ClientSession("http://localhost", connector=connector) as owner:
            text = place.config.read_text()
            place.config.write_text(text.replace('aliases = ["first"]', 'title = "The first"'))
            async with client.get("/models?reload=1") as response:
                assert response.status == 403
                assert (await response.json())["error"]["code"] == "control_socket_only"
            async with owner.get("/models?reload=1") as response:
                cards = {card["id"]: card for card in (await response.json())["data"]}
            assert cards["alpha"]["name"] == "The first"
            place.config.write_text("[server]\nlistne = 1\n")
            async with owner.get("/v1/models?reload=1") as response:
                assert response.status == 422
                assert "did you mean 'listen'?" in (await response.json())["error"]["message"]
            async with owner.get("/models?reload=0") as response:
                assert response.status == 200
