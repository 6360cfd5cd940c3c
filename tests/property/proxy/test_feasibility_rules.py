"""Whatever was seen in whatever order: what is taken instead is shallower and not known bad."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mtpd.proxy.feasibility import Feasibility, degraded
from mtpd.types import Verdict
from tests.fakes.board import arm
from tuner.types import Arm, Evicted, Host, Resident, Spilled, Unknown

FINGERPRINTS = ("old", "new")
PROFILES = ("a", "b")
RESIDENCIES = st.sampled_from([Resident(), Host(), Evicted(1), Spilled(5), Unknown("no lines")])
ARMS = st.builds(arm, st.sampled_from(PROFILES), st.integers(0, 4))


class Remembered(RuleBasedStateMachine):
    """Against a model that keeps every verdict in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.known = Feasibility()
        self.seen: list[tuple[str, Arm, Verdict]] = []

    @rule(fingerprint=st.sampled_from(FINGERPRINTS), one=ARMS, residency=RESIDENCIES)
    def start(self, fingerprint: str, one: Arm, residency: Resident) -> None:
        verdict = Verdict(residency=residency, reason="so")
        self.known.note(fingerprint, one, verdict)
        if verdict.label != "unknown":
            self.seen.append((fingerprint, one, verdict))

    def last(self, fingerprint: str, one: Arm) -> Verdict | None:
        found = [v for f, a, v in self.seen if (f, a) == (fingerprint, one)]
        return found[-1] if found else None

    @invariant()
    def the_newest_start_of_an_arm_counts(self) -> None:
        for fingerprint in FINGERPRINTS:
            for profile in PROFILES:
                for depth in range(5):
                    one = arm(profile, depth)
                    last = self.last(fingerprint, one)
                    bad = last if last is not None and degraded(last) else None
                    assert self.known.misfit(fingerprint, one) == bad

    @invariant()
    def what_is_taken_instead_is_shallower_and_not_known_to_be_bad(self) -> None:
        for fingerprint in FINGERPRINTS:
            for profile in PROFILES:
                for depth in range(5):
                    one = arm(profile, depth)
                    instead = self.known.instead(fingerprint, one)
                    if instead is None:
                        worst = self.last(fingerprint, arm(profile, 0))
                        assert depth == 0 or (worst is not None and degraded(worst))
                        continue
                    assert instead.profile == profile
                    assert instead.depth < depth
                    assert self.known.misfit(fingerprint, instead) is None


TestRemembered = Remembered.TestCase


@given(one=ARMS)
def test_nothing_is_known_at_the_beginning(one: Arm) -> None:
    assert Feasibility().misfit("old", one) is None
