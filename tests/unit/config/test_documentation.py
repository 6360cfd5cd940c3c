from __future__ import annotations

from pathlib import Path

import pytest

from mtpd.config import schema
from mtpd.config.schema import Table

DOCUMENT = Path(__file__).parents[3] / "docs" / "configuration.md"
KEYS = sorted(
    {
        (table.__name__, key)
        for table in vars(schema).values()
        if isinstance(table, type) and issubclass(table, Table)
        for key in table.model_fields
    }
)


@pytest.mark.parametrize(("table", "key"), KEYS)
def test_every_key_is_documented(table: str, key: str) -> None:
    assert f"`{key}`" in DOCUMENT.read_text(), f"{key} of {table}"


def test_the_keys_are_found() -> None:
    assert len(KEYS) > 50
