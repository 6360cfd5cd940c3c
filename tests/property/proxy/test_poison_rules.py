"""Who is quarantined: exactly those that an engine died of often enough in a row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mtpd.proxy import poison
from mtpd.proxy.poison import Death, Record, Rules
from tuner.types import Arm

MARKS = st.sampled_from("abc")
HOLD_S = 10.0
DEATH = Death(
    request_id="r", path="/", size_bytes=1, engine_id="", arm=Arm(profile="p"), cause="crash: x"
)


class Ward(RuleBasedStateMachine):
    """A plain count of deaths beside the record."""

    @initialize(after=st.integers(0, 4))
    def begin(self, after: int) -> None:
        self.law = Rules(after=after, hold_s=HOLD_S)
        self.record: Record = ()
        self.now = 0.0
        self.starts = 0
        self.deaths: dict[str, tuple[int, float]] = {}

    def count(self, mark: str) -> int:
        """Deaths that still count."""
        count, last = self.deaths.get(mark, (0, 0.0))
        return count if self.now < last + HOLD_S else 0

    @rule(seconds=st.integers(0, 6))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(mark=MARKS, alike=st.integers(1, 3))
    def die(self, mark: str, alike: int) -> None:
        self.starts += 1
        self.deaths[mark] = (self.count(mark) + 1, self.now)
        death = replace(DEATH, engine_id=str(self.starts))
        for _ in range(alike):
            self.record = poison.died(self.record, mark, death, now=self.now, rules=self.law)

    @rule(mark=MARKS)
    def answer(self, mark: str) -> None:
        if self.count(mark) < self.law.after:
            self.deaths.pop(mark, None)
        self.record = poison.answered(self.record, mark)

    @rule(mark=MARKS)
    def release(self, mark: str) -> None:
        self.deaths.pop(mark, None)
        self.record = poison.released(self.record, mark)

    @invariant()
    def the_record_says_what_the_count_says(self) -> None:
        if not hasattr(self, "rules"):
            return
        for mark in "abc":
            found = poison.find(self.record, mark, self.now)
            counted = self.count(mark) if self.law.after else 0
            assert (0 if found is None else len(found.deaths)) == counted
            assert (found is not None and found.quarantined) == (0 < self.law.after <= counted)


TestWard: Any = Ward.TestCase
TestWard.settings = settings(max_examples=100, stateful_step_count=30)
