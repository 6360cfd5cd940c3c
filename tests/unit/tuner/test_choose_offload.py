"""The choice where layers on the CPU are accepted, and its search."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from tests.unit.tuner.machine import UNKNOWN, WORKLOADS, Machine, Resident, arm, arms
from tests.unit.tuner.test_belief import CARD, started
from tuner.design import ModelBased, Sweep
from tuner.plan import Elimination, Stop
from tuner.replay import Recording, replay
from tuner.select import choose, choose_depth, summarise
from tuner.types import Act, Arm, Decision, Observation, Residency, Spilled

ALL_OUT = Machine(evicts_from=0, measures_evicted=True)
"""Too large for the card at every depth, as a quality-first model may be."""

SEARCH = ModelBased(arms=arms(0, 1, 2, 3), workloads=WORKLOADS, accept_offload=True)


def decide(
    observations: tuple[Observation, ...] | list[Observation],
    incumbent: Arm | None = None,
    **memory: int,
) -> Decision:
    weights = {arm(int(name[1:])): size for name, size in memory.items()}
    rows = summarise(observations)
    return choose_depth(rows, incumbent, memory_bytes=weights, accept_offload=True)


def placed(depth: int, tps: float, residency: Residency) -> list[Observation]:
    """Cells of depth 0's texts at a speed of our own."""
    return [
        dataclasses.replace(
            one, arm=arm(depth), residency=residency, decode_s=(one.tokens - 1) / tps
        )
        for one in Machine(wobble=0.0).run(arm(0))
    ]


def test_a_model_that_fits_at_no_depth_is_tuned_all_the_same() -> None:
    decision = decide(ALL_OUT.sweep(0, 1, 2, 3))
    assert decision.act is Act.CHOOSE
    assert decision.arm == arm(2)
    assert decision.predicted is not None
    assert decision.reason == (
        "m@2: 23.4 tok/s, partly on the CPU, beats depth 0 (1.44x, partly on the CPU), depth 1 "
        "(1.05x, partly on the CPU) and depth 3 (1.06x, partly on the CPU): alpha1 0.93 and "
        "alpha2 0.74 earn 2.62 tokens per step"
    )
    assert decision.evidence[2].startswith(
        "m@2: accepted although it does not fit (3 layers on the CPU), 23.4 tok/s over 4 prompts"
    )


def test_refusing_stays_the_default() -> None:
    rows = summarise(ALL_OUT.sweep(0, 1, 2))
    assert choose_depth(rows).act is Act.REJECT
    assert "does not fit" in choose_depth(rows).reason


@pytest.mark.parametrize(("residency", "said"), [(Spilled(5), "spilled to the host")])
def test_where_it_lies_is_said_as_it_is(residency: Residency, said: str) -> None:
    assert f"tok/s, {said}, is the only depth left" in decide(placed(1, 30.0, residency)).reason


def test_what_is_not_proven_is_not_accepted_either() -> None:
    assert decide(placed(1, 30.0, UNKNOWN)).act is Act.REJECT
    several = [
        *placed(1, 30.0, Spilled(5)),
        *(dataclasses.replace(o, fingerprint="g") for o in placed(1, 31.0, Spilled(5))),
    ]
    assert decide(several).reason == (
        "no depth of m can be chosen: depth 1 was measured under several fingerprints"
    )


def test_at_equal_speed_the_arm_in_device_memory_is_preferred() -> None:
    same = [*placed(0, 30.0, Spilled(5)), *placed(1, 30.0, Resident())]
    ahead = [*placed(0, 30.3, Spilled(5)), *placed(1, 30.0, Resident())]
    for told, incumbent in itertools.product((same, ahead), (None, arm(0), arm(1))):
        assert decide(told, incumbent, d0=1, d1=9).arm == arm(1), incumbent
    assert decide(ahead).reason.startswith(
        "m@1: 30.0 tok/s ties with depth 0 (0.99x, spilled to the host) and lies wholly in "
        "device memory: "
    )


def test_a_lead_that_is_not_proven_does_not_take_a_model_out_of_device_memory() -> None:
    noisy = placed(0, 31.0, Spilled(5))
    noisy = [
        dataclasses.replace(o, decode_s=o.decode_s * (1 + 0.2 * (o.prompt - 0.5))) for o in noisy
    ]
    decision = decide([*noisy, *placed(1, 30.0, Resident())])
    assert decision.arm == arm(1)
    assert "trails depth 0 by" in decision.reason
    assert "it is spilled to the host) and lies wholly in device memory" in decision.reason


def test_an_arm_outside_that_is_proven_faster_is_chosen_and_its_incumbent_stays() -> None:
    faster = [*placed(0, 30.0, Resident()), *placed(1, 45.0, Spilled(5))]
    assert decide(faster).arm == arm(1)
    assert decide(faster, arm(1)).act is Act.KEEP
    assert decide(faster, arm(0)).act is Act.SWITCH


def test_between_arms_that_cannot_be_compared_the_one_in_device_memory_wins() -> None:
    other = [
        dataclasses.replace(o, digest=f"other {o.prompt}") for o in placed(1, 45.0, Resident())
    ]
    decision = decide([*placed(0, 30.0, Spilled(5)), *other])
    assert decision.arm == arm(1)
    assert "cannot be compared with depth 0 (other text)" in decision.reason


def test_an_eviction_that_only_step_times_show_is_accepted_and_named() -> None:
    history = started(1, 2, 3, machine=dataclasses.replace(CARD, slow_from=2))
    decision = choose(history, accept_offload=True)
    assert decision.arm == arm(1)
    assert "depth 2 (1.91x, partly on the CPU by its step times)" in decision.reason
    assert any("accepted although it does not fit (a step takes 2" in e for e in decision.evidence)
    lone = choose(started(2, machine=dataclasses.replace(CARD, evicts_from=2)), accept_offload=True)
    assert lone.arm == arm(2)
    assert not any("nothing but the log" in e for e in lone.evidence)


def test_the_search_measures_every_depth_once_one_does_not_fit() -> None:
    history, asked, stop = ALL_OUT.calibrate(SEARCH)
    assert [ask.arm.depth for ask in asked] == [2, 0, 1, 3]
    assert asked[1].reason == (
        "depth 0 has to be measured: what layers on the CPU cost is not predicted"
    )
    assert stop == Stop(reason="every depth was measured", rejected=())
    assert choose(history, accept_offload=True).arm == arm(2)
    again = replay(SEARCH, Recording(history=history, accept_offload=True))
    assert again.decision == choose(history, accept_offload=True)


def test_the_search_stays_short_where_everything_fits() -> None:
    accepting = Machine(draft_share=0.175).calibrate(dataclasses.replace(SEARCH, deepest=3))
    refusing = Machine(draft_share=0.175).calibrate(
        dataclasses.replace(SEARCH, deepest=3, accept_offload=False)
    )
    assert [a.arm for a in accepting[1]] == [a.arm for a in refusing[1]]


def test_an_eviction_that_no_log_tells_makes_the_search_measure_every_depth() -> None:
    unread = Machine(draft_share=0.175, slow_from=2)
    _, asked, stop = unread.calibrate(SEARCH)
    assert sorted(ask.arm.depth for ask in asked) == [0, 1, 2, 3]
    assert stop.reason == "every depth was measured"


def test_the_sweep_measures_depths_that_do_not_fit_where_they_are_accepted() -> None:
    sweep = Sweep(arms=arms(0, 1, 2), workloads=WORKLOADS, accept_offload=True)
    machine = dataclasses.replace(ALL_OUT, evicts_from=1)
    history, asked, stop = machine.calibrate(sweep)
    assert [ask.arm.depth for ask in asked] == [0, 1, 2]
    assert stop.reason == "every depth was measured"
    recording = Recording(history=history, accept_offload=True)
    assert replay(sweep, recording).decision == choose(history, accept_offload=True)
    refused = machine.calibrate(dataclasses.replace(sweep, accept_offload=False))[2]
    assert {one.verdict for one in refused.rejected} == {Elimination.DOES_NOT_FIT}
