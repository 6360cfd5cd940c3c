from __future__ import annotations

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
    arm=Arm(profile="a"),
    cause="crash: x",
)


def after(*marks: str, rules: Rules = RULES, now: float = 0.0) -> Record:
    record: Record = ()
    for mark in marks:
        record = died(record, mark, DEATH, now=now, rules=rules)
    return record


def entry(record: Record, mark: str, now: float = 0.0) -> Entry:
    found = find(record, mark, now)
    assert found is not None
    return found


def test_the_first_death_makes_suspects_and_the_second_a_culprit() -> None:
    record = after("bad", "good")
    assert not entry(record, "bad").quarantined
    record = died(record, "bad", DEATH, now=1.0, rules=RULES)
    assert entry(record, "bad").quarantined
    assert entry(record, "bad").deaths == (DEATH, DEATH)
    assert not entry(record, "good").quarantined


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
