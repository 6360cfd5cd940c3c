"""Layers on the CPU where they are accepted, and what a sentence may claim."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.tuner.test_tuner_properties import DEPTHS, INCUMBENTS, RESIDENCIES, machines
from tests.unit.tuner.machine import Resident, arm
from tests.unit.tuner.test_belief import started
from tuner.select import choose, does_not_fit
from tuner.speed import SpeedComparison, compare_speeds
from tuner.summary import summarise

if TYPE_CHECKING:
    from tuner.plan import History
    from tuner.summary import ArmSummary
    from tuner.types import Arm

pytestmark = pytest.mark.slow

PLACES = RESIDENCIES | st.just(Resident())
RIVAL = re.compile(r"depth (\d+) \((\d+\.\d\d)x([^)]*)\)")


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Starts, mostly with short steps; each depth lies somewhere, and some medians are outliers.

    Two slow repetitions of three move a prompt's median, but not the joined step time.
    """
    machine = dataclasses.replace(draw(machines()), evicts_from=None, draft_share=0.15)
    told = started(*draw(DEPTHS), machine=machine, short=draw(st.sampled_from([0, 6])))
    places = draw(st.lists(PLACES, min_size=5, max_size=5))
    slow = draw(st.lists(st.sampled_from([0, 0, 2]), min_size=20, max_size=20))
    return dataclasses.replace(
        told,
        observations=tuple(
            dataclasses.replace(
                one,
                residency=places[one.arm.depth],
                decode_s=one.decode_s * (1.4 if one.repetition < slow[number] else 1.0),
            )
            for one in told.observations
            for number in [one.arm.depth * 4 + one.prompt * 2 + (one.workload == "code")]
        ),
    )


def row_of(rows: tuple[ArmSummary, ...], wanted: Arm) -> ArmSummary:
    return next(row for row in rows if row.arm == wanted)


@given(histories(), INCUMBENTS)
@settings(max_examples=60)
def test_an_arm_on_the_cpu_is_chosen_only_if_it_is_proven_to_beat_those_in_device_memory(
    history: History, incumbent: Arm | None
) -> None:
    decision = choose(history, incumbent, accept_offload=True)
    if decision.arm is None:
        return
    rows = summarise(history.observations, history.starts)
    chosen = row_of(rows, decision.arm)
    if does_not_fit(chosen.residency) is None:
        return
    assert "partly on the CPU" in decision.reason or "spilled to the host" in decision.reason
    told = "".join(decision.evidence)
    for row in rows:
        refused = choose(history.only([row.arm])).arm is None
        if f"{row.arm}: accepted" in told or refused:
            continue
        verdict = compare_speeds(chosen, row)
        assert not isinstance(verdict, SpeedComparison) or verdict.faster


@given(histories(), INCUMBENTS)
@settings(max_examples=40)
def test_with_layers_on_the_cpu_accepted_the_same_inputs_give_the_same_decision(
    history: History, incumbent: Arm | None
) -> None:
    turned = dataclasses.replace(
        history,
        observations=history.observations[::-1],
        short_steps=history.short_steps[::-1],
    )
    first = choose(history, incumbent, accept_offload=True)
    assert choose(turned, incumbent, accept_offload=True) == first


@given(histories(), INCUMBENTS)
@settings(max_examples=40)
def test_accepting_changes_nothing_where_everything_fits(
    history: History, incumbent: Arm | None
) -> None:
    decision = choose(history, incumbent, accept_offload=True)
    if any("accepted although" in one for one in decision.evidence):
        return
    assert decision == choose(history, incumbent)


def beaten(reason: str) -> dict[int, tuple[float, str]]:
    """The arms that a sentence says to beat: the ratio and the clause beside it, by depth."""
    claim = reason.split("ties with", maxsplit=1)[0]
    if "beats" not in claim:
        return {}
    return {int(depth): (float(ratio), clause) for depth, ratio, clause in RIVAL.findall(claim)}


@given(histories(), INCUMBENTS, st.booleans())
@settings(max_examples=120)
def test_no_sentence_beats_an_arm_with_the_higher_mean_without_saying_so(
    history: History,
    incumbent: Arm | None,
    accept: bool,  # noqa: FBT001 - drawn
) -> None:
    decision = choose(history, incumbent, accept_offload=accept)
    if decision.arm is None:
        return
    rows = summarise(history.observations, history.starts)
    mine = row_of(rows, decision.arm).tps
    assert mine is not None
    for depth, (ratio, clause) in beaten(decision.reason).items():
        theirs = row_of(rows, arm(depth)).tps
        assert theirs is not None
        assert ratio > 1, "the winner's speed over the loser's"
        assert theirs <= mine or "medians" in clause, decision.reason
