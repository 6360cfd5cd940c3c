"""docs/migrating.md: its files load, and it names every key that has no effect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mtpd.compat.swap_keys import MODEL_KEYS, TOP_KEYS
from mtpd.config.load import load
from mtpd.config.remarks import not_honoured

PAGE = (Path(__file__).parents[3] / "docs" / "migrating.md").read_text()
BLOCK = re.compile(r"^```(yaml|ini)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("kind", "text"), BLOCK.findall(PAGE))
def test_the_files_of_the_page_load_and_lose_nothing(tmp_path: Path, kind: str, text: str) -> None:
    path = tmp_path / f"config.{kind}"
    path.write_text(text)
    config = load(path)
    assert config.profiles["qwen27"].context == 32768
    assert config.profiles["qwen27"].drafter.depth == 2
    assert not_honoured(config) == ()


def test_both_kinds_of_files_are_shown() -> None:
    assert sorted(kind for kind, _ in BLOCK.findall(PAGE)) == ["ini", "yaml"]


@pytest.mark.parametrize("key", sorted({*TOP_KEYS, *MODEL_KEYS}))
def test_every_key_without_effect_is_on_the_page(key: str) -> None:
    assert f"`{key}`" in PAGE
