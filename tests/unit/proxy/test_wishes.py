from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.proxy.admission_types import Priority
from mtpd.proxy.wishes import DEADLINE_HEADER, PRIORITY_HEADER, BadWish, Wishes, wishes


def test_a_request_without_headers_has_no_deadline_and_normal_priority() -> None:
    assert wishes({}) == Wishes(deadline_s=math.inf, priority=Priority.NORMAL)


@pytest.mark.parametrize(
    ("word", "priority"),
    [("high", Priority.HIGH), (" Normal ", Priority.NORMAL), ("LOW", Priority.LOW)],
)
def test_a_priority_is_a_word(word: str, priority: Priority) -> None:
    assert wishes({PRIORITY_HEADER: word}) == Wishes(priority=priority)


@pytest.mark.parametrize("word", ["", "urgent", "0", "high, low"])
def test_another_word_is_told_with_those_that_exist(word: str) -> None:
    message = "X-Mtpd-Priority must be one of high, normal, low"
    assert wishes({PRIORITY_HEADER: word}) == BadWish(PRIORITY_HEADER, message)


@pytest.mark.parametrize(("text", "seconds"), [("1", 0.001), ("86400000", 86_400.0)])
def test_a_deadline_is_whole_milliseconds(text: str, seconds: float) -> None:
    assert wishes({DEADLINE_HEADER: text}) == Wishes(deadline_s=seconds)


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_is_understood_or_told(deadline: str, priority: str) -> None:
    asked = wishes({DEADLINE_HEADER: deadline, PRIORITY_HEADER: priority})
    if isinstance(asked, Wishes):
        assert 0.001 <= asked.deadline_s <= 86_400
    else:
        assert asked.header in asked.message
