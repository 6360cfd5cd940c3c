"""The objective "efficiency" over random pools."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.tuner.test_tuner_properties import candidates
from tuner.pools import EFFICIENT_SHARE, Candidate, Objective, choose_model
from tuner.speed import TIE_RATIO
from tuner.types import Unknown

if TYPE_CHECKING:
    from tuner.types import Arm

pytestmark = pytest.mark.slow


def chosen(rows: list[Candidate], objective: Objective) -> tuple[Arm | None, str]:
    decision = choose_model(rows, objective=objective, accept_offload=True)
    return decision.arm, decision.reason


@given(candidates())
@settings(max_examples=150)
def test_it_gives_up_at_most_a_fifth_of_the_speed_and_never_energy(rows: list[Candidate]) -> None:
    arm, reason = chosen(rows, Objective.EFFICIENCY)
    balanced, _ = chosen(rows, Objective.BALANCED)
    assert (arm is None) == (balanced is None)
    if not reason.startswith("R2 efficiency"):
        assert arm == balanced, "what is not known lets the other rule decide"
        return
    by_arm = {row.arm: row for row in rows}
    assert arm is not None
    assert balanced is not None
    mine, other = by_arm[arm], by_arm[balanced]
    assert mine.tps is not None
    assert other.tps is not None
    assert mine.tps >= EFFICIENT_SHARE * other.tps / (1 + TIE_RATIO)
    assert isinstance(mine.tokens_per_joule, float)
    if isinstance(other.tokens_per_joule, float) and other.tps >= mine.tps:
        assert mine.tokens_per_joule * (1 + TIE_RATIO) >= other.tokens_per_joule


@given(candidates())
@settings(max_examples=80)
def test_without_any_energy_it_is_the_balanced_choice_with_the_reason(
    rows: list[Candidate],
) -> None:
    dark = [dataclasses.replace(row, tokens_per_joule=Unknown("no sensor")) for row in rows]
    arm, reason = chosen(dark, Objective.EFFICIENCY)
    balanced, other = chosen(dark, Objective.BALANCED)
    assert arm == balanced
    if arm is not None:
        said = re.sub("; by speed, because [^;]*: no sensor", "", reason)
        assert said == other != reason


@given(candidates(), st.integers(-4, 4))
@settings(max_examples=80)
def test_another_unit_of_energy_leaves_the_choice(rows: list[Candidate], k: int) -> None:
    scaled = [
        row
        if isinstance(row.tokens_per_joule, Unknown)
        else dataclasses.replace(row, tokens_per_joule=row.tokens_per_joule * 2.0**k)
        for row in rows
    ]
    assert chosen(scaled, Objective.EFFICIENCY)[0] == chosen(rows, Objective.EFFICIENCY)[0]
