"""The table in docs/reliability.md names every promise once, and only tests that there are."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMISES = 68
ROWS = re.findall(
    r"^\| (\d+) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$",
    (ROOT / "docs" / "reliability.md").read_text(),
    re.MULTILINE,
)
TESTS = sorted({name for row in ROWS for name in re.findall(r"`(tests/[^`]+)`", row[3])})


@cache
def names(file: str) -> frozenset[str]:
    """The tests of a file."""
    found = re.findall(r"^(?:async )?def (test_\w+)\(", (ROOT / file).read_text(), re.MULTILINE)
    return frozenset(found)


def test_every_promise_has_its_row() -> None:
    assert [int(number) for number, *_ in ROWS] == list(range(1, PROMISES + 1))


@pytest.mark.parametrize("test", TESTS)
def test_what_the_table_names_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert (ROOT / file).is_file()
    assert not name or name in names(file)


def test_a_promise_without_a_test_says_so() -> None:
    for number, _, _, tests, figure in ROWS:
        assert "`tests/" in tests or (tests, figure) == ("not yet", "not yet"), number
