from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mtpd.config.data import bundled_model
from mtpd.engine.prom import SpecCounters, spec_counters
from tests.contract.harness import EMBEDDED, serving

if TYPE_CHECKING:
    from mtpd.engine.client import EngineClient

DOCS = Path(__file__).parents[3] / "docs" / "models.md"
NAMES = ("tiny-chained.gguf", "tiny-unchained.gguf")
QUESTIONS = (
    "What does os.path.join do?",
    "Write a Python class Ticket with the fields id: int, title: str.",
    "Explain step by step how to open, read and close a file.",
    "What is json.loads?",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_the_one_that_the_document_describes(name: str) -> None:
    digest = hashlib.sha256(bundled_model(name).read_bytes()).hexdigest()

    assert re.search(rf"`{re.escape(name)}` .* `{digest}`", DOCS.read_text())


async def _answers(client: EngineClient) -> str:
    texts = []
    for question in QUESTIONS:
        messages: list[Any] = [{"role": "user", "content": question}]
        body: dict[str, Any] = {
            "messages": messages,
            "max_tokens": 200,
            "temperature": 0,
            "ignore_eos": True,
        }
        reply: Any = await client.complete("/v1/chat/completions", body, timeout_s=60)
        texts.append(reply["choices"][0]["message"]["content"])
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


@pytest.mark.real_engine
@pytest.mark.slow
async def test_both_write_one_text_and_only_the_chained_head_keeps_its_second_position(
    tmp_path: Path,
) -> None:
    digests, second = set(), {}
    for name in NAMES:
        for depth in (0, 2):
            mtp = ("--spec-type", "draft-mtp", "--spec-draft-n-max", str(depth)) if depth else ()
            model = str(bundled_model(name))
            async with serving(EMBEDDED, *mtp, "--model", model, home=tmp_path) as (_, client):
                digests.add(await _answers(client))
                counters = spec_counters(await client.metrics_text())
            assert isinstance(counters, SpecCounters)
            if depth:
                assert counters.per_position is not None
                second[name] = counters.per_position[1] / counters.per_position[0]

    assert len(digests) == 1
    assert second["tiny-chained.gguf"] > 0.7
    assert second["tiny-unchained.gguf"] < 0.6
