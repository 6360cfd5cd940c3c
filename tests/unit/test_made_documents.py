"""What the documentation takes from the code is there, once, and current."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.documents.pages import BLOCKS, blocks_in, pages, written

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_is_as_the_code_has_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert written(text) == text, "run: python -m tests.documents"


def test_every_part_stands_on_one_page() -> None:
    found = Counter(name for page in pages() for name in blocks_in(page.read_text()))
    assert found == Counter(list(BLOCKS))
