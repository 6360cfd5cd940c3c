"""A file of llama-swap served as it is: same names, real engine, nothing lost silently."""

from __future__ import annotations

import json
import signal
import tempfile
from pathlib import Path

import aiohttp
import pytest

from mtpd.config.data import bundled_model
from tests.fakes.house import Home
from tests.fakes.serve import serve

CONFIG = """\
startPort: 6100
macros:
  server: llama-server --host 127.0.0.1 --port ${{PORT}} --metrics --jinja
models:
  "vendor/tiny":
    cmd: |
      ${{server}}
      # the file comes with mtpd
      -m {model}
      -c 1024 -np 1 -t 1 --temp 0.5
      --spec-type draft-mtp --draft-max 2
    aliases: [tiny-alias]
    ttl: 300
    capabilities: {{tools: true}}
mtpd:
  engine: {{binary: embedded}}
  server: {{listen: "127.0.0.1:0"}}
"""

pytestmark = [pytest.mark.real_engine, pytest.mark.slow]


async def test_a_file_of_llama_swap_is_served_by_the_real_engine() -> None:
    with tempfile.TemporaryDirectory(prefix="mtpd-t-") as folder:
        place = Home(Path(folder))
        config = place.root / "config.yaml"
        config.write_text(CONFIG.format(model=bundled_model("tiny-chained.gguf")))
        async with serve(place, "--config", str(config)) as daemon:
            await daemon.until_serving()
            async with aiohttp.ClientSession(daemon.url) as client:
                async with client.get("/v1/models") as reply:
                    (listed,) = (await reply.json())["data"]
                assert listed["id"] == "vendor/tiny"
                assert listed["aliases"] == ["tiny-alias", "vendor-tiny"]
                assert listed["meta"]["mtpd"]["profile"] == "vendor-tiny"
                for name in ("vendor/tiny", "tiny-alias"):
                    body = {"model": name, "prompt": "a", "max_tokens": 8}
                    async with client.post("/v1/completions", json=body) as reply:
                        assert reply.status == 200, await reply.text()
                        answer = await reply.json()
                        assert answer["usage"]["completion_tokens"] >= 1
                        assert answer["model"] == "vendor/tiny"
                        assert reply.headers["X-Mtpd-Depth"] == "2"
            assert await daemon.end(signal.SIGTERM) == 0
    said = [json.loads(line) for line in daemon.log.splitlines()]
    remarks = {one["text"]: one["level"] for one in said if one["event"] == "config.remark"}
    at = f'{config}:14: models."vendor/tiny".capabilities'
    assert remarks[f"{at}: not honoured: is not shown in /v1/models yet"] == "warning"
    assert any(".--temp: not honoured: " in text for text in remarks)
    assert any("'--draft-max 2' is read as '--spec-draft-n-max 2'" in text for text in remarks)
    assert all(text.startswith(f"{config}:") for text in remarks)
