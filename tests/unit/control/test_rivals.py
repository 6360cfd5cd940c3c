"""Which model of a pool is named, over measurements of simulated machines."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from mtpd.control.deciding import Member, PoolInputs
from mtpd.control.rivals import Named, named
from tests.unit.tuner.machine import Machine, arm, cells
from tuner.compare import PerplexityRun, Quality
from tuner.design import WorkloadPlan
from tuner.moment import Mode, Moment, PolicyState, Rules
from tuner.plan import History
from tuner.policy import decide
from tuner.pools import Objective
from tuner.rivals import Rival
from tuner.steps import START_SD
from tuner.types import Act, Arm, Evicted, Residency, Resident

RULES = Rules(mode=Mode.IDLE, dwell_s=0.0)
NOISE = 0.03
THREE = tuple(WorkloadPlan(name=name, prompts=3) for name in ("short", "prose", "code"))
CHUNKS = PerplexityRun(corpus="wikitext-2", chunks=32)


def member(
    name: str,
    *,
    depth: int = 2,
    tps: float = 32.4,
    perplexity: float | None = None,
    residency: Residency = Resident(),  # noqa: B008 - frozen
    joules: float | None = None,
    rng: random.Random | None = None,
    workloads: tuple[WorkloadPlan, ...] = THREE,
) -> Member:
    """A member that was measured at one depth; ``rng`` draws noise and the start's offset."""
    machine = Machine(raw_tps=tps, residency=residency)
    draw = rng or random.Random(0)  # noqa: S311 - a test's reproducible draw
    noise = NOISE if rng else 0.0
    start = draw.gauss(0, noise / 3)
    seen = machine.run(arm(depth, name), cells(workloads))
    told = tuple(
        replace(
            one,
            decode_s=one.decode_s * (1 + start + draw.gauss(0, noise)),
            joules_per_token=joules,
        )
        for one in seen
    )
    quality = None
    if perplexity is not None:
        quality = Quality(value=perplexity, stderr=0.05, run=CHUNKS)
    return Member(arm=arm(depth, name), history=History(observations=told), quality=quality)


def contest(
    *members: Member, objective: Objective = Objective.SPEED, running: Arm | None = None
) -> Named | None:
    """What is named in place of the first member."""
    home = members[0]
    asked = PoolInputs(
        subject="p",
        method="stored",
        applied=True,
        objective=objective,
        incumbent=home.arm,
        members=members,
    )
    rows = [one.candidate() for one in members]
    return named(asked, rows, rows[0], rows[0])


def test_the_faster_model_is_named_with_its_gain_and_the_pools_sentence() -> None:
    found = contest(member("m"), member("other", tps=40.0))
    assert found is not None
    assert (found.arm, found.counts) == (arm(2, "other"), "tok/s")
    assert found.gain == pytest.approx(0.2107, abs=1e-3)
    assert math.sqrt(2) * START_SD <= found.sd < 0.03, "no prompt tells what a start adds"
    assert found.reason.startswith("R2 speed: other@2 (")
    assert [line.split(":")[0] for line in found.evidence] == ["m@2", "other@2"]


def test_a_model_that_is_slower_or_ties_is_not_named() -> None:
    assert contest(member("m"), member("other", tps=30.0)) is None
    assert contest(member("m"), member("other", tps=32.9)) is None


def test_models_that_answered_other_prompts_are_not_compared() -> None:
    elsewhere = (WorkloadPlan(name="long-reasoning", prompts=3),)
    assert contest(member("m"), member("other", tps=60.0, workloads=elsewhere)) is None


def test_a_balanced_pool_gives_up_a_worse_perplexity_for_a_slower_model() -> None:
    found = contest(
        member("m", perplexity=7.0),
        member("other", tps=30.0, perplexity=5.6),
        objective=Objective.BALANCED,
    )
    assert found is not None
    assert (found.arm.profile, found.gain) == ("other", None)


def test_a_quality_pool_asks_for_the_lowest_perplexity_and_not_for_one_that_ties() -> None:
    for perplexity, expected in ((5.6, "other"), (6.99, None)):
        found = contest(
            member("m", perplexity=7.0),
            member("other", tps=40.0, perplexity=perplexity),
            objective=Objective.QUALITY,
        )
        assert (None if found is None else found.arm.profile) == expected
        assert found is None or found.gain is None


def test_an_efficiency_pool_counts_tokens_per_joule() -> None:
    found = contest(
        member("m", joules=6.0),
        member("other", tps=30.0, joules=4.0),
        objective=Objective.EFFICIENCY,
    )
    assert found is not None
    assert (found.arm.profile, found.counts) == ("other", "tok/J")
    assert found.gain == pytest.approx(0.405, abs=1e-2)


def test_a_model_that_does_not_fit_is_left_for_one_that_does() -> None:
    found = contest(member("m", tps=90.0, residency=Evicted(layers=2)), member("other"))
    assert found is not None
    assert (found.arm.profile, found.gain) == ("other", None)


@pytest.mark.parametrize("objective", [Objective.SPEED, Objective.BALANCED])
def test_equal_models_under_3_percent_of_noise_are_never_switched(objective: Objective) -> None:
    """Three equal members, measured 80 times anew, each looked at over eight windows."""
    rng = random.Random(7)  # noqa: S311 - a test's reproducible draw
    alike = 0
    for _ in range(80):
        found = contest(*(member(name, rng=rng) for name in ("m", "n", "o")), objective=objective)
        if found is None:
            alike += 1
            continue
        rival = Rival(
            pool="p",
            arm=found.arm,
            gain=found.gain,
            sd=found.sd,
            counts=found.counts,
            tps=found.tps,
            now_tps=found.now_tps,
            tokens_per_s=30.0,
            held=None,
            reason=found.reason,
        )
        state = PolicyState()
        for window in range(8):
            look = Moment(
                at_s=3600.0 * window,
                running=arm(2),
                prospects=(),
                tokens_per_s=30.0,
                switch_cost_s=5.0,
                idle_s=3600.0,
                rivals=(rival,),
            )
            state, decision = decide(RULES, state, look)
            assert decision.act is Act.KEEP, decision.reason
    assert alike > 40
