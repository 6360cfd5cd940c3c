from __future__ import annotations

from dataclasses import replace

from mtpd.proxy.poison import (
    KEPT,
    Death,
    Entry,
    Record,
    Rules,
    answered,
    any_like,
    died,
    find,
    released,
)
from tuner.types import Arm

RULES = Rules(after=2, hold_s=100.0)
DEATH = Death(
    request_id="r",
    path="/v1/chat/completions",
    size_bytes=9,
    engine_id="first",
    arm=Arm(profile="a"),
    cause="crash: x",
)
LATER = replace(DEATH, engine_id="later")


def after(*marks: str, rules: Rules = RULES, now: float = 0.0) -> Record:
    record: Record = ()
    for number, mark in enumerate(marks):
        death = replace(DEATH, engine_id=f"start {number}")
        record = died(record, mark, death, now=now, rules=rules)
    return record


def entry(record: Record, mark: str, now: float = 0.0) -> Entry:
    found = find(record, mark, now)
    assert found is not None
    return found


def test_the_first_death_makes_suspects_and_the_second_a_culprit() -> None:
    record = died(after("good"), "bad", DEATH, now=0.0, rules=RULES)
    assert not entry(record, "bad").quarantined
    record = died(record, "bad", LATER, now=1.0, rules=RULES)
    assert entry(record, "bad").quarantined
    assert entry(record, "bad").deaths == (DEATH, LATER)
    assert not entry(record, "good").quarantined


def test_one_death_counts_once_however_many_alike_it_cut_short() -> None:
    record = died((), "good", DEATH, now=0.0, rules=RULES)
    alike = died(record, "good", replace(DEATH, request_id="other"), now=1.0, rules=RULES)
    assert alike is record
    assert entry(died(alike, "good", LATER, now=2.0, rules=RULES), "good").quarantined


def test_a_suspect_that_is_answered_begins_anew() -> None:
    record = answered(after("good"), "good")
    assert find(record, "good", 0.0) is None
    assert not entry(died(record, "good", DEATH, now=1.0, rules=RULES), "good").quarantined


def test_an_answer_lifts_no_quarantine_and_an_operator_does() -> None:
    record = after("bad", "bad")
    assert answered(record, "bad") == record
    assert released(record, "bad") == ()


def test_suspicion_and_quarantine_end_by_themselves() -> None:
    record = after("bad", "bad", "other")
    assert entry(record, "bad", 99.9).quarantined
    assert find(record, "bad", 100.0) is None
    late = died(after("bad"), "bad", DEATH, now=100.0, rules=RULES)
    assert not entry(late, "bad", 100.0).quarantined
    assert len(late) == 1


def test_nothing_is_held_against_anybody_where_it_is_switched_off() -> None:
    assert after("bad", "bad", rules=Rules(after=0, hold_s=100.0)) == ()


def test_only_so_many_are_remembered() -> None:
    record = after(*(str(n) for n in range(KEPT + 5)))
    assert len(record) == KEPT
    assert find(record, "4", 0.0) is None
    assert find(record, "5", 0.0) is not None


def test_only_a_request_of_the_same_model_and_size_has_its_like() -> None:
    record = after("bad")
    assert any_like(record, "a", 9, 99.9)
    assert not any_like(record, "a", 9, 100.0)
    assert not any_like(record, "b", 9, 0.0)
    assert not any_like(record, "a", 10, 0.0)
    assert not any_like(record, "a", None, 0.0)
