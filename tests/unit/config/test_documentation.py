from __future__ import annotations

import re
from pathlib import Path

import pytest

from mtpd.config import schema
from mtpd.config.load import load
from mtpd.config.origins import describe_origins
from mtpd.config.schema import Table

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KEYS = sorted(
    {
        (table.__name__, key)
        for table in vars(schema).values()
        if isinstance(table, type) and issubclass(table, Table)
        for key in table.model_fields
    }
)


EVERYTHING = """
[engine.extra_env]
HIP_VISIBLE_DEVICES = "0"
[budget]
hardware = "gfx906-16g-150w"
[pools.pool]
members = ["llama"]
[groups.group]
members = ["other"]
[models.llama]
model = "m.gguf"
quality = { perplexity = 5.6, stderr = 0.1, corpus = "wikitext-2", chunks = 32 }
filters = { strip = ["a"], set = { b = 1 }, set_by_name = { llama = { d = 2 } } }
[models.other]
kind = "opaque"
command = ["whisper-server", "${PORT}"]
env = { TOKEN = "secret" }
"""
NOT_OF_MTPD_TOML = {"WorkloadTable", "PromptTable", "MessageTable"}
NOT_VALUES = {"model_defaults", "drafters", "name"}
"""Values of each model, and what its drafters are called: models of their own."""


def test_every_key_is_shown_with_its_origin(tmp_path: Path) -> None:
    path = tmp_path / "mtpd.toml"
    path.write_text(EVERYTHING)
    shown = {name for view in describe_origins(load(path)) for name in view.key.split(".")}
    keys = {key for table, key in KEYS if table not in NOT_OF_MTPD_TOML}
    assert keys - shown == NOT_VALUES


def examples() -> list[str]:
    """Every configuration that README or docs show."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [block for page in pages for block in BLOCK.findall(page.read_text())]


@pytest.mark.parametrize("text", examples())
def test_every_example_is_a_configuration(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mtpd.toml"
    path.write_text(text)
    assert load(path).profiles


def test_the_examples_are_found() -> None:
    assert len(examples()) >= 2


def test_the_keys_are_found() -> None:
    assert len(KEYS) > 50
