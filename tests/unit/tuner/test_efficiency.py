"""Energy per arm, and the objective that goes by it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from tests.unit.tuner.machine import Machine, arm
from tuner.compare import PerplexityRun, Quality
from tuner.power import token_j
from tuner.select import Candidate, Objective, choose_model, summarise
from tuner.types import Act, Observation, Resident, Unknown

if TYPE_CHECKING:
    from tuner.summary import ArmSummary

RUN = PerplexityRun(corpus="wikitext-2", chunks=32)


def powered(watts: float | None, machine: Machine | None = None) -> list[Observation]:
    return [
        dataclasses.replace(
            one, joules_per_token=token_j(watts, decode_s=one.decode_s, tokens=one.tokens)
        )
        for one in (machine or Machine()).run(arm(2))
    ]


def row(observations: list[Observation]) -> ArmSummary:
    (only,) = summarise(observations)
    return only


def model(
    name: str, tps: float, joules: float | None, ppl: float = 5.6, gib: int = 14
) -> Candidate:
    return Candidate(
        arm=arm(2, name),
        tps=tps,
        residency=Resident(),
        quality=Quality(value=ppl, stderr=0.15, run=RUN),
        memory_bytes=gib << 30,
        alphas=(0.9, 0.7),
        tokens_per_joule=Unknown("no power was read") if joules is None else joules,
    )


def test_the_energy_of_an_arm_is_averaged_like_its_speed() -> None:
    summary = row(powered(150.0))
    assert summary.tps is not None
    assert isinstance(summary.tokens_per_joule, float)
    assert summary.tokens_per_joule == pytest.approx(summary.tps / 150, rel=0.02)
    assert isinstance(summary.token_j, float)
    twice = row(powered(300.0))
    assert twice.token_j == pytest.approx(2 * summary.token_j)


def test_one_repetition_without_power_makes_the_energy_unknown_and_never_0() -> None:
    observations = powered(150.0)
    observations[0] = dataclasses.replace(observations[0], joules_per_token=None)
    assert row(observations).tokens_per_joule == Unknown(
        "the energy of 1 of 4 prompts was not measured"
    )
    assert isinstance(row(powered(None)).tokens_per_joule, Unknown)
    dead = row(powered(0.0)).tokens_per_joule
    assert dead == Unknown("the card reported no power while it worked"), "0 W is a dead sensor"


def test_a_candidate_brings_the_energy_of_its_row() -> None:
    summary = row(powered(150.0))
    assert Candidate.of(summary).tokens_per_joule == summary.tokens_per_joule


def test_the_most_tokens_per_joule_wins_among_those_that_are_fast_enough() -> None:
    rows = (model("fast", 50.0, 0.30), model("frugal", 40.0, 0.40), model("slow", 39.9, 0.90))
    decision = choose_model(rows, objective=Objective.EFFICIENCY, subject="p")
    assert decision.arm == arm(2, "frugal")
    assert decision.reason == (
        "R2 efficiency: frugal@2 (40.0 tok/s, perplexity 5.6, fully resident) gives 0.4 tok/J, the "
        "most among the 2 with at least 80% of the highest speed of the 3 whose perplexity is not "
        "significantly worse than the best (5.6 of fast)"
    )
    assert choose_model(rows, objective=Objective.BALANCED).arm == arm(2, "fast")


def test_an_unknown_energy_lets_the_speed_decide_and_says_so() -> None:
    rows = (model("fast", 50.0, 0.30), model("dark", 45.0, None))
    decision = choose_model(rows, objective=Objective.EFFICIENCY)
    assert decision.arm == arm(2, "fast")
    assert decision.reason.startswith("R2 balanced: fast@2")
    assert decision.reason.endswith(
        "; by speed, because the tokens per joule of dark are not known: no power was read"
    )
    slow = (model("fast", 50.0, 0.30), model("dark", 20.0, None))
    assert "R2 efficiency" in choose_model(slow, objective=Objective.EFFICIENCY).reason


def test_within_two_percent_the_incumbent_stays() -> None:
    rows = (model("a", 50.0, 0.400), model("b", 50.0, 0.395))
    kept = choose_model(rows, objective=Objective.EFFICIENCY, incumbent=arm(2, "b"))
    assert (kept.act, kept.arm) == (Act.KEEP, arm(2, "b"))
    assert "a tie with a (0.4): it stays as the incumbent" in kept.reason
    free = choose_model(rows[::-1], objective=Objective.EFFICIENCY)
    assert free.arm == arm(2, "a"), "nothing else tells them apart but the name"
    lean = choose_model((rows[0], model("b", 50.0, 0.395, gib=10)), objective=Objective.EFFICIENCY)
    assert lean.arm == arm(2, "b")


def test_a_worse_perplexity_is_not_bought_with_energy() -> None:
    rows = (model("good", 50.0, 0.30), model("bad", 50.0, 0.90, ppl=8.0))
    assert choose_model(rows, objective=Objective.EFFICIENCY).arm == arm(2, "good")
    bare = tuple(dataclasses.replace(one, quality=None) for one in rows)
    decision = choose_model(bare, objective=Objective.EFFICIENCY)
    assert decision.arm == arm(2, "bad")
    assert "although no perplexity is measured" in decision.reason
