"""The chain from stored cells to a decision's sentence."""

from __future__ import annotations

from mtpd.control.explain import explanation
from mtpd.views import ArmView
from tests.fakes.values import decision_view, measurement_view
from tests.unit.control.made import arm, observation

WHEN = ("2026-11-29T12:00:00.000Z", "2026-11-29T12:05:00.000Z")
TWO = ArmView(profile="tiny", drafter="mtp", depth=2, p_min=0.0)
ZERO = ArmView(profile="tiny", drafter="none", depth=0, p_min=0.0)
STORED = (
    measurement_view(id=1, at=WHEN[0], arm=ZERO, start_id="start-of-tiny@0", prompt=0),
    measurement_view(id=2, at=WHEN[1], arm=TWO, start_id="start-of-tiny@2", prompt=0),
)
TOLD = (observation(arm(depth=0)), observation(arm(depth=2)))


def test_the_chain_goes_from_the_cells_over_the_rows_to_the_sentence() -> None:
    decision = decision_view(reason="depth 2 is faster", measurement_ids=(1, 2))
    found = explanation(decision, STORED, TOLD)
    assert found.decision is decision
    assert found.measurements == STORED
    assert [row.arm for row in found.rows] == [ZERO, TWO]
    assert found.chain[0] == (
        "2 repetitions of 1 prompt on 2 engine starts, measured from "
        "2026-11-29T12:00:00.000Z to 2026-11-29T12:05:00.000Z"
    )
    assert found.chain[1] == "tiny@0: 50.0 tok/s, host"
    assert found.chain[2].startswith("tiny@2: 135.0 tok/s, host, 2.70 tokens per step, alpha1 0.9")
    assert found.chain[2].endswith("(30/38)")
    assert found.chain[3:] == ("depth 2 is faster",)


def test_a_row_has_the_energy_per_token_of_the_repetitions_that_count_and_have_it() -> None:
    asked: dict[str, object] = {"arm": TWO, "start_id": "start-of-tiny@2"}
    stored = (
        STORED[0],
        measurement_view(**asked, tokens=100, joules_per_token=3.0, net_joules_per_token=2.5),
        measurement_view(**asked, tokens=300, joules_per_token=2.0),
        measurement_view(**asked, tokens=900, joules_per_token=9.0, excluded="too hot"),
        measurement_view(**asked),
    )
    chain = explanation(decision_view(), stored, TOLD).chain
    assert "J/token" not in chain[1], "it was not measured"
    assert chain[2].endswith("(30/38), 2.25 J/token (2.50 above idle)")
    without = (STORED[0], measurement_view(**asked, joules_per_token=2.0))
    assert explanation(decision_view(), without, TOLD).chain[2].endswith(", 2.00 J/token")


def test_the_outcome_ends_the_chain() -> None:
    found = explanation(decision_view(outcome="ready, host"), STORED, TOLD)
    assert found.chain[-1] == "then: ready, host"


def test_a_decision_without_measurements_says_who_named_the_arm() -> None:
    found = explanation(decision_view(reason="an operator asked for tiny at depth 2"), (), ())
    assert found.rows == ()
    assert found.measurements == ()
    assert found.chain == (
        "no measurement: an operator or the configuration named this",
        "an operator asked for tiny at depth 2",
    )


def test_cells_of_several_fingerprints_of_one_model_are_pointed_out() -> None:
    stored = (STORED[0], measurement_view(id=2, arm=TWO, fingerprint="another"))
    assert explanation(decision_view(), stored, TOLD).chain[0].endswith(", under 2 fingerprints")


def test_two_models_have_a_fingerprint_each_and_that_is_no_warning() -> None:
    other = ArmView(profile="other", drafter="none", depth=0, p_min=0.0)
    stored = (STORED[0], measurement_view(id=2, arm=other, fingerprint="another"))
    assert "fingerprints" not in explanation(decision_view(), stored, TOLD).chain[0]


def test_a_row_that_may_not_be_used_says_why_in_its_step() -> None:
    told = (
        observation(arm(depth=0)),
        observation(arm(depth=2), excluded="the card throttled"),
        observation(arm(depth=3), steps=None, accepted_per_position=None),
    )
    chain = explanation(decision_view(), STORED, told).chain
    assert chain[2] == (
        "tiny@2: not measured (acceptance unknown: nothing was measured; "
        "left out: the card throttled)"
    )
    assert chain[3].endswith(
        "3.00 tokens per step; acceptance unknown: the build does not count verification steps"
    )
