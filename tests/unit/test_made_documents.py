"""What the documentation takes from the code is there, once, and current."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.documents.pages import BLOCKS, FILES, ROOT, blocks_in, pages, written
from tests.documents.status_picture import drawing
from tests.fakes import views

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_is_as_the_code_has_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert written(text) == text, "run: python -m tests.documents"


@pytest.mark.parametrize("name", FILES)
def test_a_drawing_is_as_the_code_has_it(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == FILES[name], (
        "run: python -m tests.documents"
    )


def test_every_part_stands_on_one_page() -> None:
    found = Counter(name for page in pages() for name in blocks_in(page.read_text()))
    assert found == Counter(list(BLOCKS))


def test_the_picture_of_the_status_is_drawn_of_what_is_there_and_fetches_nothing() -> None:
    status = views.status()
    picture = drawing(status)
    assert f"mtpd&#160;{status.version}" in picture
    assert not re.search(r"@font-face|@import|href|url\((?!#)", picture)
