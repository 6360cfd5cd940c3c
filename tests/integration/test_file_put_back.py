"""A model whose file was away is served by the next request after it came back."""

from __future__ import annotations

import shutil

import pytest

from mtpd.config.data import bundled_model
from tests.fakes.binary import fake_binary
from tests.fakes.house import daemon_at, home, write_config

ASK = {"model": "alpha", "prompt": "x", "n_predict": 1}


@pytest.mark.slow
async def test_a_file_that_was_put_back_is_served_at_once() -> None:
    async with home() as place:
        model, away = place.root / "m.gguf", place.root / "away"
        shutil.copy(bundled_model("tiny-chained.gguf"), away)
        binary = fake_binary(place.root / "llama-server")
        write_config(place, binary=str(binary), model=model)
        async with daemon_at(place) as (_, client):
            for _ in range(2):
                async with client.post("/completion", json=ASK) as reply:
                    assert reply.status == 503
                    assert "No such file or directory" in await reply.text()
                    assert int(reply.headers["Retry-After"]) <= 1
            away.rename(model)
            async with client.post("/completion", json=ASK) as reply:
                assert reply.status == 200, await reply.text()
