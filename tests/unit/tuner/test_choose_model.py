from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tuner.machine import UNKNOWN, Machine, arm
from tests.unit.tuner.test_studies import note_002
from tuner.compare import Incomparable, PerplexityRun, Quality, Trap
from tuner.select import Candidate, Objective, choose_model, summarise
from tuner.siblings import Inferred, Pair, infer
from tuner.types import Act, Evicted, Host, Residency, Resident, Spilled

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
    alphas: tuple[float, ...] | None = (0.9, 0.7),
) -> Candidate:
    return Candidate(
        arm=arm(2, name),
        tps=tps,
        residency=residency,
        quality=None if ppl is None else Quality(value=ppl, stderr=stderr, run=run),
        memory_bytes=None if gib is None else round(gib * GIB),
        tags=frozenset(tags),
        alphas=alphas,
    )


STUDY_000 = (
    model(
        "3.8 Uncensored Q4_K_M",
        27.0,
        5.5997,
        gib=15.6,
        residency=Evicted(layers=None),
        tags=("uncensored",),
        alphas=None,
    ),
    model("3.6 B2", 50.3, 5.6553, gib=14.3, alphas=(0.961, 0.885)),
    model("3.8 base Q4_0", 38.0, 5.6942, gib=14.95, residency=UNKNOWN, alphas=(0.881, 0.761)),
    model("3.8 base B2", 46.0, 5.7722, gib=14.3, alphas=(0.932, 0.735)),
    model(
        "3.8 Uncensored i1-Q4_0",
        42.0,
        5.8041,
        gib=14.6,
        residency=UNKNOWN,
        tags=("uncensored",),
        alphas=(0.886, 0.736),
    ),
    model("3.8 Uncensored B2", 45.8, 5.8404, gib=14.3, tags=("uncensored",), alphas=(0.907, 0.725)),
)
"""Study 000, "The measurement matrix"; the serving column is at depth 2."""


def test_the_default_of_study_000_is_36_b2_and_the_rule_is_named() -> None:
    decision = choose_model(STUDY_000, subject="default")
    assert decision.act is Act.CHOOSE
    assert decision.reason == (
        "R2 balanced: 3.6 B2@2 (50.3 tok/s, perplexity 5.6553, fully resident) is the fastest of "
        "the 3 whose perplexity is not significantly worse than the best (5.6553 of 3.6 B2), "
        "before 3.8 Uncensored B2 (1.10x), 3.8 base B2 (1.09x)"
    )
    assert decision.predicted is not None
    assert decision.predicted.mid == 50.3
    assert any("evicted, not resident (R1)" in line for line in decision.evidence)
    assert any("not proven to be resident" in line for line in decision.evidence)


def test_uncensored_in_study_000_is_38_uncensored_b2() -> None:
    decision = choose_model(STUDY_000, require=frozenset({"uncensored"}))
    assert decision.arm == arm(2, "3.8 Uncensored B2")
    assert decision.reason == (
        "R2 balanced: 3.8 Uncensored B2@2 (45.8 tok/s, perplexity 5.8404, fully resident) is the "
        "fastest of the 1 whose perplexity is not significantly worse than the best (5.8404 of "
        "3.8 Uncensored B2); without the tag uncensored it would be 3.6 B2@2 (50.3 tok/s, "
        "perplexity 5.6553)"
    )
    assert any("lacks the tag uncensored (R1)" in line for line in decision.evidence)


def test_a_required_tag_that_the_best_model_has_is_not_worth_a_word() -> None:
    rows = (model("best", 60.0, 5.5, tags=("x",)), model("other", 40.0, 5.6))
    decision = choose_model(rows, require=frozenset({"x"}))
    assert decision.arm == arm(2, "best")
    assert "without the tag" not in decision.reason


def base_q4_k_m(name: str = "3.8 base Q4_K_M", tags: tuple[str, ...] = ()) -> Inferred:
    """The third recommendation of study 000, which is not a row of its matrix (TUNER 3.8)."""
    rows = {row.name: row.quality for row in STUDY_000}
    pairs = [
        Pair(without=rows[a], having=rows[b], source=f"{a} against {b}")  # type: ignore[arg-type]  # all are measured
        for a, b in (
            ("3.8 base B2", "3.8 Uncensored B2"),
            ("3.8 base Q4_0", "3.8 Uncensored i1-Q4_0"),
        )
    ]
    known = rows["3.8 Uncensored Q4_K_M"]
    assert known is not None
    found = infer(name, known, "3.8 Uncensored Q4_K_M", pairs, tags=frozenset(tags))
    assert isinstance(found, Inferred)
    return found


def test_quality_first_with_offload_in_study_000_is_38_uncensored_q4_k_m() -> None:
    """The study says base Q4_K_M, which is not a row of its matrix: offered, not chosen."""
    decision = choose_model(
        STUDY_000,
        objective=Objective.QUALITY,
        accept_offload=True,
        unmeasured=[base_q4_k_m()],
    )
    assert decision.arm == arm(2, "3.8 Uncensored Q4_K_M")
    assert decision.reason == (
        "R3 quality: 3.8 Uncensored Q4_K_M@2 (27.0 tok/s, perplexity 5.5997, partly on the CPU) "
        "has the lowest perplexity, a statistical tie with 3.6 B2, 3.8 Uncensored B2, "
        "3.8 Uncensored i1-Q4_0, 3.8 base B2, 3.8 base Q4_0; its alpha2 is not measured, so no "
        "other depth is guessed (R4); 3.8 base Q4_K_M is unmeasured, measure first: a perplexity "
        "of 5.49 to 5.53 follows from 3.8 Uncensored Q4_K_M (5.5997) and 3.8 base B2 against "
        "3.8 Uncensored B2 and 3.8 base Q4_0 against 3.8 Uncensored i1-Q4_0 (R5)"
    )


def test_the_siblings_of_base_q4_k_m_imply_the_range_that_tuner_38_prints() -> None:
    """5.5997 / 1.0118 and / 1.0193, the two prices of abliteration in study 000."""
    found = base_q4_k_m()
    assert (found.low, found.high) == pytest.approx((5.4937, 5.5343), abs=1e-4)


def test_an_unmeasured_model_is_offered_only_where_it_could_be_better() -> None:
    offer = base_q4_k_m()
    balanced = choose_model(STUDY_000, unmeasured=[offer])
    assert balanced.arm == arm(2, "3.6 B2")
    assert "Q4_K_M" not in balanced.reason, "a balanced pool is not told to wait for it"
    assert str(offer) in balanced.evidence
    uncensored = choose_model(STUDY_000, require=frozenset({"uncensored"}), unmeasured=[offer])
    assert str(offer) not in uncensored.evidence, "it lacks the tag"
    tagged = base_q4_k_m(tags=("uncensored",))
    again = choose_model(STUDY_000, require=frozenset({"uncensored"}), unmeasured=[tagged])
    assert str(tagged) in again.evidence
    for value in (5.4, 5.51):
        best = model("best", 20.0, value)
        lower = choose_model([best], objective=Objective.QUALITY, unmeasured=[offer])
        assert str(offer) not in lower.evidence, "not all of its range would be lower"
    nothing = choose_model((), unmeasured=[offer])
    assert nothing.reason == f"no model can be chosen for pool: none is given; {offer}"
    bare = choose_model((model("a", 50.0, None),), unmeasured=[offer])
    assert str(offer) in bare.evidence, "nothing speaks against it"


def test_siblings_measured_on_another_text_imply_nothing() -> None:
    few = PerplexityRun(corpus="wikitext-2", chunks=16)
    known = Quality(value=5.6, stderr=0.15, run=RUN)
    other = Quality(value=7.7, stderr=0.15, run=few)
    for pair in (
        Pair(without=known, having=other, source="p"),
        Pair(without=other, having=known, source="p"),
    ):
        verdict = infer("x", known, "y", [pair])
        assert isinstance(verdict, Incomparable)
        assert verdict.trap is Trap.CHUNKS


@pytest.mark.parametrize(
    ("objective", "bound", "chosen"),
    [
        (Objective.SPEED, None, "3.6 B2"),
        (Objective.SPEED, 1.0005, "slow"),
        (Objective.BALANCED, 1.02, "3.6 B2"),
        (Objective.QUALITY, 1.0, "slow"),
    ],
)
def test_a_quality_bound_is_a_multiple_of_the_lowest_perplexity(
    objective: Objective, bound: float | None, chosen: str
) -> None:
    rows = (*STUDY_000, model("slow", 20.0, 5.65))
    assert choose_model(rows, objective=objective, quality_bound=bound).arm == arm(2, chosen)


def test_a_bound_refuses_what_is_not_measured_and_says_what_is_above_it() -> None:
    rows = (model("good", 20.0, 5.0), model("bad", 80.0, 5.2), model("unknown", 90.0, None))
    decision = choose_model(rows, objective=Objective.SPEED, quality_bound=1.02)
    assert decision.arm == arm(2, "good")
    assert decision.evidence[0].endswith(
        "has a perplexity of 5.2, above 1.02 times the lowest (R1)"
    )
    assert decision.evidence[2].endswith("has no measured perplexity (R0)")
    none = choose_model(rows[2:], quality_bound=1.02)
    assert none.reason.endswith("unknown has no measured perplexity (R0)")


def test_a_context_that_is_too_short_or_not_known_is_refused() -> None:
    long, short, dark = (
        dataclasses.replace(model(name, tps, 5.6), context_tokens=context)
        for name, tps, context in (
            ("long", 30.0, 16384),
            ("short", 50.0, 8192),
            ("dark", 60.0, None),
        )
    )
    decision = choose_model((long, short, dark), least_context_tokens=16384)
    assert decision.arm == arm(2, "long")
    assert decision.evidence[2].endswith("holds 8192 of 16384 tokens (R1)")
    assert decision.evidence[0].endswith("is not known to hold 16384 tokens (R1)")
    assert choose_model((long, short, dark)).arm == arm(2, "dark")


@pytest.mark.parametrize(
    ("residency", "text"),
    [
        (Resident(), "fully resident"),
        (Host(), "in host memory"),
        (Evicted(layers=3), "partly on the CPU"),
        (Spilled(1), "spilled to the host"),
        (UNKNOWN, "not proven to be resident"),
    ],
)
def test_the_sentence_says_where_the_chosen_model_lies(residency: Residency, text: str) -> None:
    decision = choose_model((model("a", 50.0, 5.6, residency=residency),), accept_offload=True)
    assert f"(50.0 tok/s, perplexity 5.6, {text})" in decision.reason


@pytest.mark.parametrize(
    ("depth", "alphas", "given"),
    [
        (2, None, True),
        (2, (0.9,), True),
        (2, (0.9, 0.7), False),
        (1, None, False),
        (0, None, False),
    ],
)
def test_a_depth_without_a_measured_alpha2_is_called_given(
    depth: int,
    alphas: tuple[float, ...] | None,
    given: bool,  # noqa: FBT001 - a table
) -> None:
    one = dataclasses.replace(model("a", 50.0, 5.6, alphas=alphas), arm=arm(depth, "a"))
    assert ("no other depth is guessed (R4)" in choose_model((one,)).reason) is given


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
    assert fast.reason.startswith(
        "R2 speed: bad@2 (80.0 tok/s, perplexity 6, fully resident) is the fastest of 2"
    )


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
        "R2 balanced: b@2 (80.0 tok/s, fully resident) is the fastest although no perplexity is "
        "measured, before a (2.00x)"
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
        "no model can be chosen for pool: slow is below 10 tok/s (R1); still was not measured "
        "(R4); unmeasured was not measured (R4)"
    )
    assert any(
        line == "unmeasured@2: unmeasured, perplexity 5, was not measured (R4)"
        for line in decision.evidence
    )
    assert choose_model((model("at it", 10.0, 5.0),), floor_tps=10.0).arm == arm(2, "at it")
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
    assert "b (1.05x)" in bare.reason, "no common prompt: the bare figures"


def test_a_measured_depth_is_tuned_if_its_positions_were_counted() -> None:
    counted, dark = Machine(), Machine(positions=False)
    (a,), (b,) = (summarise(m.run(arm(2, "a"))) for m in (counted, dark))
    tuned = Candidate.of(a)
    assert tuned.alphas == pytest.approx((0.93, 0.737), abs=0.01)
    assert not tuned.depth_is_given
    assert Candidate.of(b).alphas is None
    assert Candidate.of(b).depth_is_given


@given(st.lists(st.floats(0.2, 0.95), min_size=4, max_size=4))
def test_a_drafter_that_loses_to_the_head_is_rejected_with_its_numbers(
    shares: list[float],
) -> None:
    """Note 002: an off-the-shelf drafter lost to the MTP head on this workload and was rejected.

    The head is the row n = 2 of "The depth sweep" (55.4, 47.2, 54.7, 47.4; mean 51.2), cell by
    cell. The note prints no figure of the drafter, so it is any that loses in every cell.
    """
    cells = note_002(2)
    drafter = [
        dataclasses.replace(one, arm=arm(2, "27b+draft-model"), decode_s=one.decode_s / share)
        for one, share in zip(cells, shares, strict=True)
    ]
    (head, lost) = (*summarise(cells), *summarise(drafter))
    never = model("27b+eagle3", None, None)
    decision = choose_model(
        (Candidate.of(head), Candidate.of(lost), never), objective=Objective.SPEED, subject="27b"
    )
    assert decision.arm == head.arm
    assert head.tps == pytest.approx(51.175)
    assert decision.reason.startswith(
        "R2 speed: qwen3.6-27b@2 (51.2 tok/s, fully resident) is the fastest of 2, before"
        " 27b+draft-model ("
    )
    assert lost.tps is not None
    assert f"27b+draft-model@2: {lost.tps:.1f} tok/s" in decision.evidence
    assert any("27b+eagle3@2" in line and "not measured" in line for line in decision.evidence)
