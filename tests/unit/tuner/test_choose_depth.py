from __future__ import annotations

import dataclasses

import pytest

from tests.unit.tuner.machine import UNKNOWN, Evicted, Host, Machine, arm
from tuner.cost import CostFit
from tuner.select import choose_depth, cost_of, does_not_fit, rejection, summarise
from tuner.types import Act, Arm, Decision, Observation, Resident, Spilled, Start, Unknown


def decide(
    observations: tuple[Observation, ...] | list[Observation],
    incumbent: Arm | None = None,
    **memory: int,
) -> Decision:
    weights = {arm(int(name[1:])): size for name, size in memory.items()}
    return choose_depth(summarise(observations), incumbent, memory_bytes=weights)


CPU = Machine(raw_tps=812.0, row_cost=0.83, accepted=(110, 60, 30))
"""A machine on which a verification row costs nearly a full step."""

GPU = Machine()
"""Study 000's card: depth 2 is best (1.43x), depth 1 makes 1.37x, depth 3 1.35x."""


def test_on_a_cpu_speculation_does_not_pay_and_the_sentence_names_the_numbers() -> None:
    decision = decide(CPU.sweep(0, 1, 2))
    assert decision.act is Act.CHOOSE
    assert decision.arm == arm(0)
    assert decision.reason == (
        "m@0: 815 tok/s beats depth 1 (1.18x) and depth 2 (1.44x): a verification row costs 0.83 "
        "of a step here, alpha1 0.55 earns 1.55 tokens per step - speculation does not pay here"
    )


def test_on_the_study_card_depth_2_is_chosen_with_its_acceptance() -> None:
    decision = decide(GPU.sweep(0, 1, 2, 3))
    assert decision.arm == arm(2)
    assert decision.predicted is not None
    assert decision.predicted.low < GPU.tps(2) * 1.005 < decision.predicted.high
    assert decision.reason == (
        "m@2: 46.7 tok/s beats depth 0 (1.44x), depth 1 (1.05x) and depth 3 (1.06x): a "
        "verification row costs 0.41 of a step here, alpha1 0.93 and alpha2 0.74 earn 2.62 "
        "tokens per step"
    )
    assert decision.evidence[2] == (
        "m@2: 46.7 tok/s over 4 prompts, spread 1%, 2.62 tokens per step, "
        "alpha1 0.928 [0.905, 0.949], alpha2 0.736 [0.696, 0.773]"
    )


def test_a_tie_keeps_the_incumbent() -> None:
    flat = Machine(row_cost=0.0, accepted=(10, 9))
    for depth in (0, 1):
        kept = decide(Machine(row_cost=0.045, accepted=(10,)).sweep(0, 1), arm(depth))
        assert kept.act is Act.KEEP
        assert kept.arm == arm(depth)
        assert "stays as the incumbent" in kept.reason
    assert decide(flat.sweep(0, 1), arm(0)).act is Act.SWITCH


def test_a_tie_without_an_incumbent_takes_the_least_memory() -> None:
    tie = Machine(row_cost=0.045, accepted=(10,)).sweep(0, 1)
    chosen = decide(tie)
    assert chosen.arm == arm(0)
    assert "ties with depth 1 (0.99x)" in chosen.reason
    assert "and needs less memory" in chosen.reason
    assert chosen.reason.endswith("speculation earns nothing measurable here")
    assert decide(tie, d0=20, d1=10).arm == arm(1)
    assert decide(tie, d1=10).arm == arm(0), "not known for all: the smallest depth"


def test_a_beaten_incumbent_is_replaced() -> None:
    decision = decide(GPU.sweep(0, 2), arm(0))
    assert decision.act is Act.SWITCH
    assert decision.previous == arm(0)
    assert decision.arm == arm(2)


def test_an_incumbent_that_was_not_measured_does_not_stay() -> None:
    assert decide(GPU.sweep(0, 1), arm(3)).arm == arm(1)


@pytest.mark.parametrize(
    "residency", [Evicted(layers=1), Evicted(layers=None), Spilled(5), UNKNOWN]
)
def test_the_fastest_arm_is_not_chosen_if_its_residency_does_not_pass(
    residency: Evicted | Spilled | Unknown,
) -> None:
    fast = [dataclasses.replace(o, residency=residency) for o in GPU.run(arm(2))]
    decision = decide([*GPU.sweep(0, 1), *fast], arm(2))
    assert decision.arm == arm(1)
    assert decision.act is Act.SWITCH
    said = "is not proven to be resident" if residency == UNKNOWN else "depth 2 does not fit"
    assert said in decision.reason


def test_host_memory_by_design_passes() -> None:
    assert decide(Machine(residency=Host()).sweep(0, 1, 2)).arm == arm(2)


def test_nothing_that_passes_means_that_nothing_is_chosen() -> None:
    decision = decide(Machine(evicts_from=0).sweep(0, 1), arm(1))
    assert decision.act is Act.REJECT
    assert decision.arm is None
    assert decision.previous == arm(1)
    assert decision.reason == (
        "no depth of m can be chosen: depth 0 does not fit (1 layer on the CPU) and depth 1 "
        "does not fit (2 layers on the CPU)"
    )


def test_nothing_measured_is_a_rejection_too() -> None:
    assert choose_depth(()).reason == "no depth of no arm can be chosen: nothing was measured"
    assert choose_depth((), subject="qwen").subject == "qwen"


def test_a_single_arm_is_the_only_one_left() -> None:
    alone = decide(GPU.sweep(0))
    assert alone.reason == "m@0: 32.5 tok/s is the only depth left"
    drafting = decide(GPU.sweep(2))
    assert drafting.reason == (
        "m@2: 46.7 tok/s is the only depth left: alpha1 0.93 and alpha2 0.74 earn 2.62 "
        "tokens per step"
    )


def test_depths_of_several_profiles_are_a_mistake() -> None:
    rows = summarise([*GPU.sweep(0), *GPU.sweep(0, profile="other")])
    with pytest.raises(ValueError, match="one profile"):
        choose_depth(rows)


def test_other_texts_are_not_compared_and_the_trap_is_named() -> None:
    differ = Machine(texts_differ=True)
    decision = decide(differ.sweep(0, 2))
    assert decision.arm == arm(0)
    assert "cannot be compared with depth 2 (other text)" in decision.reason
    assert "earns nothing measurable" not in decision.reason
    assert "different texts for 4 of 4 prompts" in decision.evidence[-1]


def test_a_comparable_arm_that_is_beaten_does_not_win_because_another_text_is_in_the_way() -> None:
    mixed = [*GPU.sweep(0, 2), *Machine(texts_differ=True).sweep(3)]
    assert decide(mixed).arm == arm(2)


def test_a_build_without_counters_still_yields_a_choice_by_speed() -> None:
    bare = [
        dataclasses.replace(o, accepted=None, accepted_per_position=None, steps=None)
        if o.arm.depth
        else o
        for o in GPU.sweep(0, 2)
    ]
    assert decide(bare).reason == "m@2: 46.7 tok/s beats depth 0 (1.44x)"


def test_aggregate_counters_name_the_depth_instead_of_the_alphas() -> None:
    decision = decide(Machine(positions=False).sweep(0, 2))
    assert "depth 2 earns 2.62 tokens per step" in decision.reason


def test_outliers_and_what_was_left_out_stay_visible() -> None:
    first, *rest = GPU.run(arm(2))
    slow = dataclasses.replace(first, decode_s=first.decode_s * 2)
    hot = dataclasses.replace(rest[-1], excluded="edge 61 C")
    decision = decide([*GPU.sweep(0), slow, *rest[:-1], hot])
    assert "1 outlier kept" in decision.evidence[1]
    assert "1 left out: edge 61 C" in decision.evidence[1]
    both = dataclasses.replace(rest[5], decode_s=first.decode_s * 2)
    again = decide([*GPU.sweep(0), slow, *rest[:5], both, *rest[6:]])
    assert "2 outliers kept" in again.evidence[1]


def test_a_step_that_misses_the_fitted_line_is_reported() -> None:
    slow = [dataclasses.replace(o, decode_s=o.decode_s * 1.9) for o in GPU.run(arm(3))]
    decision = decide([*GPU.sweep(0, 1, 2), *slow])
    assert decision.arm == arm(2)
    assert any("the arm is not really resident" in line for line in decision.evidence)


def test_a_failed_start_and_several_fingerprints_are_refused_in_words() -> None:
    failed = Start(arm=arm(3), start_id="x", residency=UNKNOWN, failure="exit code 1")
    mixed = [*GPU.run(arm(1)), *Machine(fingerprint="g").run(arm(1))]
    out = [dataclasses.replace(o, excluded="hot") for o in GPU.run(arm(2))]
    rows = summarise([*GPU.sweep(0), *mixed, *out], [failed])
    assert [rejection(row) for row in rows] == [
        None,
        "was measured under several fingerprints",
        "was not measured",
        "did not start (exit code 1)",
    ]
    assert does_not_fit(Resident()) is None
    assert choose_depth(rows).evidence[3] == "m@3: did not start (exit code 1)"


def test_of_arms_that_beat_each_other_in_a_circle_one_that_gives_nothing_away_is_chosen() -> None:
    """Possible where each pair of arms shares other prompts; nothing repeats, so no interval."""
    rows = []
    prompts = {0: {0: 2.0, 1: 1.0}, 1: {1: 2.0, 2: 1.0}, 2: {2: 2.1, 0: 1.0}}
    for depth, speeds in prompts.items():
        template = GPU.run(arm(depth))[0]
        rows += [
            dataclasses.replace(
                template, prompt=p, digest=str(p), decode_s=(template.tokens - 1) / tps
            )
            for p, tps in speeds.items()
        ]
    decision = choose_depth(summarise(rows))
    assert decision.arm == arm(0), "depth 2 has the highest mean, and depth 0 beats it"
    assert (
        "beats depth 2 (2.00x by the prompts that both answered; the table's medians say 0.97x), "
        "trails depth 1 by 100%" in decision.reason
    )
    assert "not proven" not in decision.reason
    assert "busy" not in decision.reason, "nothing says that the times contradict each other"


def test_the_row_cost_is_fitted_to_resident_rows_only() -> None:
    cost = cost_of(summarise(Machine(evicts_from=2).sweep(0, 1, 2)))
    assert isinstance(cost, CostFit)
    assert cost.c == pytest.approx(0.41, abs=0.01)
