"""litellm and llama-benchy, unmodified, as programs of their own, against the real engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from aiohttp import test_utils, web
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.e2e.test_clients import daemon

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = [pytest.mark.real_engine, pytest.mark.slow, pytest.mark.timeout(180)]

LITELLM = """
import json, sys
import litellm

url, hi = sys.argv[1], [{"role": "user", "content": "hi"}]
cold = {"api_key": "any", "messages": hi, "max_tokens": 6, "temperature": 0}
whole = litellm.completion(model="openai/alpha", api_base=f"{url}/v1", **cold)
parts = litellm.completion(model="openai/alpha", api_base=f"{url}/v1", stream=True, **cold)
other = litellm.completion(model="anthropic/alpha", api_base=url, **cold)
try:
    litellm.completion(model="openai/alhpa", api_base=f"{url}/v1", **cold)
except litellm.NotFoundError as error:
    refused = str(error)
print(json.dumps({
    "tokens": whole.usage.completion_tokens,
    "whole": whole.choices[0].message.content,
    "parts": "".join(part.choices[0].delta.content or "" for part in parts),
    "other": other.choices[0].message.content,
    "refused": refused,
}))
"""


async def run(argv: list[str], home: Path, more: Mapping[str, str]) -> str:
    """What a client prints that can reach nothing but this machine."""
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", **more}
    done = await anyio.run_process(
        argv, env=environment, cwd=home, stderr=subprocess.STDOUT, check=False
    )
    said = done.stdout.decode()
    assert done.returncode == 0, said
    return said


async def test_litellm_works_unmodified(tmp_path: Path) -> None:
    async with daemon() as url:
        said = await run(
            [sys.executable, "-c", LITELLM, url],
            tmp_path,
            {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        )
    got = json.loads(said.splitlines()[-1])
    assert got["tokens"] == 6
    assert got["whole"]
    assert got["whole"] == got["parts"] == got["other"]
    assert "no model is called 'alhpa'" in got["refused"]


def tokenizer_of_bytes(directory: Path) -> Path:
    """A tokenizer of one token per byte: llama-benchy counts with one of its own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    directory.mkdir()
    made.save(str(directory / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (directory / "tokenizer_config.json").write_text(json.dumps(kind))
    return directory


async def test_llama_benchy_works_unmodified(tmp_path: Path) -> None:
    async def book(_request: web.Request) -> web.Response:
        return web.Response(text="It was a dark and stormy night. " * 500)

    library = web.Application()
    library.router.add_get("/book.txt", book)
    async with daemon() as url, test_utils.TestServer(library) as shelf:
        await run(
            [
                str(Path(sys.executable).with_name("llama-benchy")),
                *("--base-url", f"{url}/v1", "--model", "alpha", "--runs", "2"),
                *("--tokenizer", str(tokenizer_of_bytes(tmp_path / "tokenizer"))),
                *("--book-url", str(shelf.make_url("/book.txt"))),
                *("--pp", "128", "--tg", "16", "--exact-tg", "--concurrency", "1", "2"),
                "--skip-coherence",  # the tiny model does not know the capital of France
                *("--format", "json", "--save-result", str(tmp_path / "result.json")),
            ],
            tmp_path,
            {},
        )
    result = json.loads((tmp_path / "result.json").read_text())
    assert [one["concurrency"] for one in result["benchmarks"]] == [1, 2]
    # Speeds are left out where a busy machine delivers a whole reply at once; this is not.
    assert [len(one["ttfr"]["values"]) for one in result["benchmarks"]] == [2, 4]
    assert {one["response_size"] for one in result["benchmarks"]} == {16}
