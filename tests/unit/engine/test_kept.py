"""Tokens that engines keep of their prompts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mtpd.engine.facts import PromptReprocessed, SlotReleased
from mtpd.engine.kept import KEEP, PromptCaches, lost_sentence
from mtpd.types import Absent


def released(slot: int, tokens: int) -> SlotReleased:
    return SlotReleased(slot=slot, task=1, tokens=tokens)


def test_each_slot_keeps_its_last_request() -> None:
    caches = PromptCaches()
    caches.hear("one", released(0, 153))
    caches.hear("one", released(1, 20))
    caches.hear("one", PromptReprocessed())
    caches.hear("one", released(0, 268))
    caches.hear("two", released(0, 5))
    assert caches.of({"one"}) == 288
    assert caches.of({"one", "two"}) == 293
    assert caches.of(()) == 0
    assert lost_sentence(288) == "prompt cache lost: 288 tokens"


def test_what_was_not_told_is_unknown_and_not_nothing() -> None:
    caches = PromptCaches()
    caches.hear("one", released(0, 153))
    unknown = caches.of({"one", "two"})
    assert isinstance(unknown, Absent)
    assert lost_sentence(unknown) == f"prompt cache lost: unknown, {unknown.reason}"


@given(st.lists(st.tuples(st.integers(0, 2 * KEEP), st.integers(0, 3), st.integers(0, 10**6))))
def test_the_last_word_of_every_slot_counts(said: list[tuple[int, int, int]]) -> None:
    caches = PromptCaches()
    for start, slot, tokens in said:
        caches.hear(str(start), released(slot, tokens))
    for start in {start for start, _, _ in said[-KEEP:]}:
        told = {slot: tokens for one, slot, tokens in said if one == start}
        assert caches.of({str(start)}) == sum(told.values())


def test_the_starts_of_long_ago_are_forgotten() -> None:
    caches = PromptCaches()
    for start in range(KEEP + 1):
        caches.hear(str(start), released(0, 1))
    assert isinstance(caches.of({"0"}), Absent)
    assert caches.of({"1"}) == 1
