"""What an engine inherits of a hostile environment: nothing.

One inherited ``LLAMA_ARG_TOOLS=all`` lets whoever may ask run commands (docs/security.md).
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.fakes.house import home
from tests.fakes.serve import processes_of, serve

TABLE = Path(__file__).parents[1] / "corpus" / "llama_flags_b11434.json"
LOADERS: Final = (
    *("GGML_BACKEND_PATH", "LLAMA_SERVER_CHILD_MODE", "HF_TOKEN", "AIP_MODE", "AIP_HTTP_PORT"),
    *("http_proxy", "HTTPS_PROXY", "LLAMA_CACHE", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY"),
)
GIVEN: Final = frozenset(
    {
        *("PATH", "HOME", "LANG", "XDG_CONFIG_HOME", "GGML_NO_BACKTRACE", "MTPD_INSTANCE"),
        "LLAMA_API_KEY",  # a new one of its own
        # What the script sets that starts the scripted engine.
        *("FAKE_LLAMA", "PWD"),
    }
)


@pytest.mark.slow
async def test_an_engine_gets_none_of_the_daemons_variables() -> None:
    names = (name for entry in json.loads(TABLE.read_text())["flags"] for name in entry["names"])
    words = {name.lstrip("-").replace("-", "_").upper() for name in names}
    hostile = {f"LLAMA_ARG_{word}": "CANARY-62" for word in words}
    hostile |= dict.fromkeys((*LOADERS, "LLAMA_API_KEY"), "CANARY-62")
    assert len(hostile) > 160
    async with home() as place, serve(place, environment=hostile) as daemon:
        await daemon.until_serving()
        async with aiohttp.ClientSession(daemon.url) as client:
            ask = {"model": "alpha", "prompt": "x", "n_predict": 1}
            async with client.post("/completion", json=ask) as reply:
                assert reply.status == 200, await reply.text()
        own = environment_of(daemon.process.pid)
        assert set(hostile) <= set(own), "the daemon itself was given them"
        engines = [pid for pid in processes_of(place) if pid != daemon.process.pid]
        assert engines
        for pid in engines:
            given = environment_of(pid)
            assert set(given) - GIVEN == set()
            assert "CANARY-62" not in " ".join(given.values())
        assert await daemon.end(signal.SIGTERM) == 0


def environment_of(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
