from __future__ import annotations

import dataclasses

import pytest

from tests.unit.tuner.machine import UNKNOWN, Machine, arm
from tuner.compare import PerplexityRun, Quality
from tuner.select import Candidate, Objective, choose_model, summarise
from tuner.types import Act, Evicted, Residency, Resident

RUN = PerplexityRun(corpus="wikitext-2", chunks=32)
GIB = 2**30


def model(
    name: str,
    tps: float | None,
    ppl: float | None,
    *,
    gib: float | None = None,
    stderr: float | None = 0.15,
    residency: Residency = Resident(),  # noqa: B008 - frozen
    tags: tuple[str, ...] = (),
    run: PerplexityRun = RUN,
) -> Candidate:
    return Candidate(
        arm=arm(2, name),
        tps=tps,
        residency=residency,
        quality=None if ppl is None else Quality(value=ppl, stderr=stderr, run=run),
        memory_bytes=None if gib is None else round(gib * GIB),
        tags=frozenset(tags),
    )


STUDY_000 = (
    model(
        "3.8 Uncensored Q4_K_M",
        27.0,
        5.5997,
        gib=15.6,
        residency=Evicted(layers=None),
        tags=("uncensored",),
    ),
    model("3.6 B2", 50.3, 5.6553, gib=14.3),
    model("3.8 base Q4_0", 38.0, 5.6942, gib=14.95, residency=UNKNOWN),
    model("3.8 base B2", 46.0, 5.7722, gib=14.3),
    model(
        "3.8 Uncensored i1-Q4_0", 42.0, 5.8041, gib=14.6, residency=UNKNOWN, tags=("uncensored",)
    ),
    model("3.8 Uncensored B2", 45.8, 5.8404, gib=14.3, tags=("uncensored",)),
)
"""Study 000, "The measurement matrix"; the serving column is at depth 2."""


def test_the_default_of_study_000_is_36_b2_and_the_rule_is_named() -> None:
    decision = choose_model(STUDY_000, subject="default")
    assert decision.act is Act.CHOOSE
    assert decision.reason == (
        "R2 balanced: 3.6 B2@2 (50.3 tok/s, perplexity 5.6553) is the fastest of the 3 whose "
        "perplexity is not significantly worse than the best (5.6553 of 3.6 B2), before "
        "3.8 Uncensored B2 (0.91x), 3.8 base B2 (0.91x)"
    )
    assert decision.predicted is not None
    assert decision.predicted.mid == 50.3
    assert any("evicted, not resident (R1)" in line for line in decision.evidence)
    assert any("not proven to be resident" in line for line in decision.evidence)


def test_uncensored_in_study_000_is_38_uncensored_b2() -> None:
    decision = choose_model(STUDY_000, require=frozenset({"uncensored"}))
    assert decision.arm == arm(2, "3.8 Uncensored B2")
    assert any("lacks the tag uncensored (R1)" in line for line in decision.evidence)


def test_quality_first_with_offload_in_study_000_is_38_uncensored_q4_k_m() -> None:
    """The study says base Q4_K_M, which is not a row of its matrix."""
    decision = choose_model(STUDY_000, objective=Objective.QUALITY, accept_offload=True)
    assert decision.reason.startswith(
        "R3 quality: 3.8 Uncensored Q4_K_M@2 (27.0 tok/s, perplexity 5.5997) has the lowest "
        "perplexity, a statistical tie with 3.6 B2"
    )


def test_quality_without_offload_takes_only_resident_rows() -> None:
    decision = choose_model(STUDY_000, objective=Objective.QUALITY)
    assert decision.arm == arm(2, "3.6 B2")


@pytest.mark.parametrize("rho", [0.0, 0.95, 0.99])
def test_the_recommendations_hold_at_any_correlation_of_the_errors(rho: float) -> None:
    assert choose_model(STUDY_000, rho=rho).arm == arm(2, "3.6 B2")
    uncensored = choose_model(STUDY_000, require=frozenset({"uncensored"}), rho=rho)
    assert uncensored.arm == arm(2, "3.8 Uncensored B2")


def test_an_incumbent_within_the_tie_rule_stays() -> None:
    """3.8 base B2 (46.0) against 3.8 Uncensored B2 (45.8): 0.4 %."""
    pair = (STUDY_000[3], STUDY_000[5])
    for incumbent in pair:
        decision = choose_model(pair, incumbent=incumbent.arm)
        assert decision.act is Act.KEEP
        assert decision.arm == incumbent.arm
        assert "stays as the incumbent" in decision.reason


def test_an_incumbent_at_another_depth_of_the_chosen_model_is_switched() -> None:
    decision = choose_model(STUDY_000, incumbent=arm(1, "3.6 B2"))
    assert decision.act is Act.SWITCH
    assert decision.previous == arm(1, "3.6 B2")


def test_a_tie_goes_to_the_lower_perplexity_then_to_the_least_memory_then_to_the_name() -> None:
    by_quality = choose_model((model("a", 50.0, 5.7, gib=8), model("b", 50.1, 5.6, gib=9)))
    assert by_quality.arm == arm(2, "b")
    assert by_quality.reason.endswith("and has the lower perplexity")
    by_memory = choose_model((model("a", 50.0, 5.6, gib=9), model("b", 50.1, 5.6, gib=8)))
    assert by_memory.arm == arm(2, "b")
    assert by_memory.reason.endswith("and needs the least memory")
    assert choose_model((model("b", 50.0, 5.6), model("a", 50.1, 5.6))).arm == arm(2, "a")
    unknown_last = choose_model((model("a", 50.0, 5.6), model("b", 50.1, 5.6, gib=99)))
    assert unknown_last.arm == arm(2, "b")


def test_perplexities_of_another_run_do_not_break_a_tie() -> None:
    few = PerplexityRun(corpus="wikitext-2", chunks=16)
    rows = (model("a", 50.0, 5.9, gib=8), model("b", 50.1, 5.6, gib=9, run=few))
    assert choose_model(rows, objective=Objective.SPEED).arm == arm(2, "a")


def test_a_significantly_worse_perplexity_does_not_win_by_speed() -> None:
    rows = (model("good", 40.0, 5.0, stderr=0.01), model("bad", 80.0, 6.0, stderr=0.01))
    assert choose_model(rows).arm == arm(2, "good")
    fast = choose_model(rows, objective=Objective.SPEED)
    assert fast.arm == arm(2, "bad")
    assert fast.reason.startswith("R4 speed: bad@2 (80.0 tok/s, perplexity 6) is the fastest of 2")


def test_16_chunks_are_not_compared_with_32_and_the_larger_group_stays() -> None:
    few = PerplexityRun(corpus="wikitext-2", chunks=16)
    odd = model("odd", 90.0, 5.0, run=few)
    decision = choose_model((*STUDY_000, odd))
    assert decision.arm == arm(2, "3.6 B2")
    assert any(
        "does not compare (R0): one was measured over a chunk count of 32, the other 16" in line
        for line in decision.evidence
    )
    pair = (model("a", 50.0, 5.9), odd)
    assert choose_model(pair).arm == arm(2, "a"), "more chunks win among groups of one"
    assert choose_model(pair, incumbent=odd.arm).arm == odd.arm, "the incumbent's group first"


def test_an_unmeasured_perplexity_is_never_guessed() -> None:
    rows = (model("known", 40.0, 5.0), model("unknown", 80.0, None))
    assert choose_model(rows).arm == arm(2, "known")
    assert choose_model(rows, objective=Objective.SPEED).arm == arm(2, "unknown")
    none = (model("a", 40.0, None), model("b", 80.0, None))
    assert choose_model(none).reason == (
        "R2 balanced: b@2 (80.0 tok/s) is the fastest although no perplexity is measured, "
        "before a (0.50x)"
    )
    refused = choose_model(none, objective=Objective.QUALITY, incumbent=arm(2, "a"), subject="q")
    assert refused.act is Act.REJECT
    assert refused.arm is None
    assert refused.reason == (
        "no model can be chosen for q: a has no measured perplexity (R0); "
        "b has no measured perplexity (R0)"
    )


def test_an_incumbent_that_ties_with_the_best_quality_stays() -> None:
    rows = (model("a", 40.0, 5.60), model("b", 50.0, 5.61), model("c", 50.0, 9.0))
    decision = choose_model(rows, objective=Objective.QUALITY, incumbent=arm(2, "b"))
    assert decision.act is Act.KEEP
    assert "the lowest perplexity, a, ties with it" in decision.reason
    worse = choose_model(rows, objective=Objective.QUALITY, incumbent=arm(2, "c"))
    assert worse.arm == arm(2, "a")
    alone = choose_model(rows[::2], objective=Objective.QUALITY)
    assert alone.reason.endswith("has the lowest perplexity")


def test_hard_requirements_refuse_with_their_reason() -> None:
    rows = (model("slow", 9.0, 5.0), model("unmeasured", None, 5.0), model("still", 0.0, 5.0))
    decision = choose_model(rows, floor_tps=10.0)
    assert decision.reason == (
        "no model can be chosen for pool: slow is below 10 tok/s (R1); still was not measured; "
        "unmeasured was not measured"
    )
    assert any(
        line == "unmeasured@2: unmeasured, perplexity 5, was not measured"
        for line in decision.evidence
    )
    assert choose_model(()).reason == "no model can be chosen for pool: none is given"


def test_measured_models_are_compared_over_the_prompts_they_share() -> None:
    fast, slow = Machine(), Machine(raw_tps=25.0)
    (a,) = summarise(fast.run(arm(2, "a")))
    (b,) = summarise(slow.run(arm(1, "b")))
    decision = choose_model((Candidate.of(a), Candidate.of(b)))
    assert decision.arm == arm(2, "a")
    assert decision.predicted is not None
    assert decision.predicted.mid == a.tps
    uneven = [
        dataclasses.replace(o, decode_s=o.decode_s / (1.5 if o.prompt else 0.8))
        for o in fast.run(arm(2, "c"))
    ]
    (c,) = summarise(uneven)
    assert (c.tps or 0.0) > 1.1 * (a.tps or 0.0)
    unsure = choose_model((Candidate.of(a), Candidate.of(c)), incumbent=a.arm)
    assert unsure.act is Act.KEEP, "faster on one prompt and slower on the other is a tie"
    shaky = dataclasses.replace(b, arm=arm(1, "b"), tps=(a.tps or 0.0) * 0.95, cells=())
    bare = choose_model((Candidate.of(a), Candidate.of(shaky)))
    assert bare.arm == arm(2, "a")
    assert "b (0.95x)" in bare.reason, "no common prompt: the bare figures"
