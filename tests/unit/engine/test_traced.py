"""Draft lengths per step: one 64-token reply of a tiny model at depth 3 and p-min 0.5."""

from __future__ import annotations

from typing import Final

import pytest

from mtpd.engine.acceptance import read_acceptance
from mtpd.engine.facts import DraftAcceptance, DraftVerified
from mtpd.engine.logs import fact
from mtpd.engine.prom import SpecCounters
from mtpd.engine.traced import draft_steps, offered
from mtpd.types import Absent
from tests.unit.engine import recorded
from tuner.acceptance import PositionCounts, cond_from_counts, true_tokens_per_step
from tuner.drafts import DraftStep, plain_steps, traced, trusted
from tuner.types import Unknown

FACTS: Final = [f for _, f in recorded.everything("logs/embedded_trace_n3_pmin05.log") if f]
STEPS: Final = draft_steps(FACTS, task=0)
COUNTERS: Final = PositionCounts(steps=18, accepted=(16, 6, 3), cut=3 * 18 - 32)
"""What ``/metrics`` said of the same reply: num_drafts, per_pos and num_draft_tokens."""


def verified(
    accepted: int, drafted: int, *, task: int = 0, restored: bool = False
) -> DraftVerified:
    return DraftVerified(slot=0, task=task, accepted=accepted, drafted=drafted, restored=restored)


def test_the_traced_steps_are_those_that_the_counters_count() -> None:
    (summary,) = [f for f in FACTS if isinstance(f, DraftAcceptance)]
    assert len(STEPS) == COUNTERS.steps
    assert sum(s.drafted for s in STEPS) == summary.drafted == 32
    assert sum(s.accepted for s in STEPS) == summary.accepted == 25
    assert tuple(sum(s.accepted > i for s in STEPS) for i in range(3)) == COUNTERS.accepted


def test_the_trace_identifies_positions_that_the_counters_miss_by_far() -> None:
    """Of 16 kept first tokens only 6 had a second one, and all 6 of these were kept."""
    assert cond_from_counts(COUNTERS) == pytest.approx((16 / 18, 6 / 16, 3 / 6))
    found = traced(3, STEPS)
    assert found.alphas == pytest.approx((16 / 18, 1.0, 3 / 4))
    assert found.offered == (18, 6, 4)
    assert isinstance(trusted(COUNTERS), Unknown)
    assert true_tokens_per_step(64, 25) == pytest.approx(63 / 38)
    assert plain_steps(64, 25, 18) == 20, "p-min left more than half of the steps undrafted"


def test_a_step_that_is_verified_again_counts_once_and_other_requests_do_not() -> None:
    facts = [
        verified(1, 3, restored=True),
        verified(9, 9, task=1),
        verified(2, 2),
        verified(3, 3),
    ]
    assert draft_steps(facts, task=0) == (
        DraftStep(drafted=3, accepted=1),
        DraftStep(drafted=3, accepted=3),
    )
    assert draft_steps(facts, task=2) == ()


def test_the_line_of_a_higher_verbosity_is_not_counted_twice() -> None:
    line = "slot   operator(): id  0 | task 0 | accepted 2/3 draft tokens"
    assert isinstance(fact(line), DraftVerified)
    assert fact(f"{line}, new n_tokens = 42") is None


TOTALS: Final = (18, 32, 25)


def test_what_was_offered_counts_where_the_trace_adds_up_to_the_totals() -> None:
    assert offered(FACTS, depth=3, totals=TOTALS) == (18, 6, 4)
    for totals in ((17, 32, 25), (18, 33, 25), (18, 32, 24), (None, 32, 25)):
        assert offered(FACTS, depth=3, totals=totals) is None, totals
    assert offered(FACTS, depth=2, totals=TOTALS) is None, "a draft of 3 at depth 2"
    without_end = [one for one in FACTS if not isinstance(one, DraftAcceptance)]
    assert offered(without_end, depth=3, totals=TOTALS) is None


def test_a_request_that_was_not_traced_offers_nothing_known() -> None:
    ends = [one for one in FACTS if isinstance(one, DraftAcceptance)]
    assert offered(ends, depth=3, totals=(0, 0, 0)) is None
    assert offered((), depth=3, totals=TOTALS) is None


def test_the_reading_of_a_traced_request_has_what_its_drafts_offered() -> None:
    counters = SpecCounters(drafts=18, drafted=32, accepted=25, per_position=(16, 6, 3))
    absent = Absent("no timings")
    read = read_acceptance(3, counters=counters, timings=absent, facts=FACTS)
    assert (read.per_position, read.offered) == ((16, 6, 3), (18, 6, 4))
    assert read_acceptance(3, counters=counters, timings=absent).offered is None
