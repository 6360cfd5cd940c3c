from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.unit.tuner.machine import WORKLOADS, Machine, arm, arms
from tests.unit.tuner.test_memory import CARD, MIB, NOTE_002, PLANNING
from tuner.advisor import Advice, Device, Lever, Speed, advise, rejected
from tuner.design import ModelBased
from tuner.eviction import LAYER_COST_H200, LayerCost
from tuner.memory import Evicts, Fits, Geometry, KvType, LoadPlan, assumed
from tuner.plan import Elimination
from tuner.types import Unknown

DEFAULT: Final = Device(free_bytes=CARD, headroom_bytes=256 * MIB)
SIX_BIT: Final = replace(PLANNING, output_bytes=248320 * 5120 * 210 // 256)
"""The same model before the B2 recipe: its output matrix in Q6_K, 312.6 MiB more."""


def advice(
    plan: LoadPlan,
    device: Device = DEFAULT,
    geometry: Geometry = PLANNING,
    *,
    speed: Speed | None = None,
    allowed: tuple[Lever, ...] = tuple(Lever),
    layer_cost: LayerCost | None = None,
    evicted_layers: int | None = None,
) -> Advice:
    return advise(
        geometry,
        plan,
        assumed(geometry),
        device,
        speed=speed,
        allowed=allowed,
        layer_cost=layer_cost,
        evicted_layers=evicted_layers,
    )


def note_002(depth: int, speed: Speed | None = None) -> Advice:
    """27B-B2, 2 slots, context 4096, q8_0, 16368 MiB, the engine's default margin."""
    return advice(replace(NOTE_002, depth=depth), speed=speed)


def test_the_first_lever_for_depth_3_of_note_002_is_the_margin_and_it_is_enough() -> None:
    said = note_002(3)
    assert isinstance(said.holds, Fits), "the device holds it"
    assert isinstance(said.stays, Evicts), "the engine's margin does not leave it there"
    first = said.options[0]
    assert first.lever is Lever.MARGIN
    assert first.enough
    assert first.gained_bytes == 768 * MIB
    assert first.tps_ratio == 1.0
    assert first.cost == (
        "Costs nothing but a reserve that nothing needs: -fitt 256, or -fit off with an "
        "explicit -ngl."
    )
    assert said.together == (first,)
    assert said.reason == (
        "depth 3, 2 slots, context 4096, KV q8_0 needs 15646 MiB, which the device holds, but "
        "248 MiB too many for the engine's fit margin of 1024 MiB; enough is a fit margin of "
        "256 MiB or 1 slot or depth 2"
    )


def test_the_margin_is_worth_27x_at_depth_3_which_is_predicted_and_says_from_what() -> None:
    """real_gpu_27b.md, table, 16 GiB: 98.5 tok/s with a small margin, 35.85 with 4 layers out."""
    plan = replace(NOTE_002, depth=3)
    said = advice(plan, layer_cost=LAYER_COST_H200, evicted_layers=4)
    assert said.options[0].lever is Lever.MARGIN
    assert said.options[0].tps_ratio == 1.0, "then it is as fast as any resident load"
    assert said.slowdown is not None
    factor = said.slowdown.factor
    assert factor.low < 98.5 / 35.85 < factor.high
    assert factor.mid == pytest.approx(3.3, abs=0.05), "seven cells of one host, not this one"
    assert said.reason.endswith(
        "enough is a fit margin of 256 MiB or 1 slot or depth 2; resident it is predicted to run "
        "3.3x as fast [1.6x, 5.0x] as with 4 layers on the CPU (from seven evicted cells of a 27B "
        "model on one H200 host)"
    )


def test_without_a_log_the_fewest_layers_are_predicted_and_called_that() -> None:
    said = advice(replace(NOTE_002, depth=3), layer_cost=LAYER_COST_H200)
    assert said.slowdown is not None
    assert (said.slowdown.layers, said.slowdown.counted) == (2, False)
    assert "at least 2.1x as fast" in said.reason
    assert "with at least 2 layers on the CPU" in said.reason


def test_a_load_that_stays_or_may_stay_has_no_slowdown() -> None:
    assert advice(replace(NOTE_002, depth=2), layer_cost=LAYER_COST_H200).slowdown is None
    need = note_002(3).predicted.total
    unsure = Device(free_bytes=need, headroom_bytes=0, margin_bytes=None)
    said = advice(replace(NOTE_002, depth=3), unsure, layer_cost=LAYER_COST_H200, evicted_layers=4)
    assert said.slowdown is None
    assert note_002(3).slowdown is None, "no layer cost was given"


def test_one_slot_less_keeps_depth_3_under_the_default_margin_too() -> None:
    slots = next(option for option in note_002(3).options if option.lever is Lever.SLOTS)
    assert slots.enough
    assert slots.load.plan.slots == 1
    assert slots.load.device.margin_bytes == 1024 * MIB
    assert slots.gained_bytes / MIB == pytest.approx(4 * 149.625, abs=5)
    assert slots.cost == "Serves 1 request at once instead of 2; others wait."


def test_levers_are_ranked_by_what_they_cost_and_every_one_says_what_it_gains() -> None:
    options = note_002(3).options
    assert [option.lever for option in options] == [
        Lever.MARGIN,
        Lever.SLOTS,
        Lever.DRAFT_KV,
        Lever.KV,
        Lever.CONTEXT,
        Lever.DEPTH,
    ], "the output tensor already is in q4_0"
    assert all(option.gained_bytes > 0 for option in options)
    assert [option.enough for option in options] == [True, True, False, False, False, True]
    assert [str(option) for option in options] == [
        "a fit margin of 256 MiB",
        "1 slot",
        "a draft KV in q4_0",
        "a KV in q4_0",
        "a context of 2048",
        "depth 2",
    ]


@pytest.mark.parametrize(
    ("depth", "enough"),
    [(3, "a fit margin of 256 MiB"), (4, "a fit margin of 256 MiB"), (5, "1 slot")],
)
def test_depth_3_and_deeper_of_note_002_do_not_fit_which_is_not_that_they_do_not_pay(
    depth: int, enough: str
) -> None:
    verdict = rejected(arm(depth), note_002(depth))
    assert verdict is not None
    assert verdict.verdict is Elimination.DOES_NOT_FIT
    assert verdict.reason.startswith(f"does not fit (depth {depth}, 2 slots")
    assert f"; enough is {enough}" in verdict.reason
    assert "pay" not in verdict.reason


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_depth_2_and_shallower_of_note_002_fit_and_need_no_advice(depth: int) -> None:
    said = note_002(depth)
    assert isinstance(said.stays, Fits)
    assert said.options == said.together == ()
    assert said.reason.endswith("MiB to spare")
    assert rejected(arm(depth), said) is None


def test_a_search_that_is_told_what_fits_never_starts_depth_3_of_note_002() -> None:
    deepest = max(depth for depth in range(6) if isinstance(note_002(depth).stays, Fits))
    assert deepest == 2
    design = ModelBased(arms=arms(0, 1, 2, 3, 4, 5), workloads=WORKLOADS, deepest=deepest)
    _, asks, stop = Machine().calibrate(design)
    assert {ask.arm.depth for ask in asks} <= {0, 1, 2}
    out = {r.arm.depth: r.verdict for r in stop.rejected}
    assert all(out[depth] is Elimination.DOES_NOT_FIT for depth in (3, 4, 5))


def test_another_depth_has_a_predicted_speed_where_acceptance_and_row_cost_are_known() -> None:
    """(.93, .74, .74) at 0.41 per row: 46.61 tok/s at depth 2 and 45.44 at depth 3."""
    known = note_002(3, Speed(alphas=(0.93, 0.74, 0.74), row_cost=0.41))
    depth = known.options[-1]
    assert (depth.lever, depth.load.plan.depth) == (Lever.DEPTH, 2)
    assert depth.tps_ratio == pytest.approx(46.61 / 45.44, abs=1e-3)
    assert depth.cost == "Drafts 2 tokens per step instead of 3."
    short = note_002(3, Speed(alphas=(0.93, 0.74), row_cost=0.41))
    assert short.options[-1].tps_ratio is None, "nothing is known of the third position"
    assert note_002(3).options[-1].tps_ratio is None


def test_a_cache_of_another_type_has_no_predicted_speed() -> None:
    ratios = {option.lever: option.tps_ratio for option in note_002(3).options}
    assert ratios[Lever.KV] is ratios[Lever.DRAFT_KV] is None
    assert ratios[Lever.SLOTS] == ratios[Lever.CONTEXT] == 1.0


def test_the_b2_recipe_is_offered_for_a_file_whose_output_tensor_is_larger() -> None:
    tight = Device(free_bytes=15700 * MIB, headroom_bytes=0, margin_bytes=None)
    plan = replace(NOTE_002, depth=3)
    said = advice(plan, tight, SIX_BIT, allowed=(Lever.OUTPUT, Lever.MARGIN))
    (option,) = said.options
    assert option.lever is Lever.OUTPUT, "with fit off there is no margin to change"
    assert option.gained_bytes / MIB == pytest.approx(312.6, abs=0.1)
    assert option.load.geometry == PLANNING
    assert "perplexity rose by 0.6 to 1.4 %" in option.cost
    assert "enough" in said.reason
    assert "for the device" in said.reason


def test_changes_that_are_enough_only_together_are_named_together() -> None:
    large = replace(NOTE_002, context=86016, depth=5)
    said = advice(large, geometry=SIX_BIT)
    assert not any(option.enough for option in said.options)
    assert [option.lever for option in said.together] == [
        Lever.MARGIN,
        Lever.SLOTS,
        Lever.DRAFT_KV,
        Lever.KV,
        Lever.CONTEXT,
    ]
    assert said.together[-1].enough
    assert "MiB too many for the device; enough is only a fit margin of 256 MiB with 1 slot" in (
        said.reason
    )


def test_if_nothing_allowed_is_enough_that_is_said() -> None:
    said = advice(replace(NOTE_002, depth=3), allowed=(Lever.DRAFT_KV, Lever.KV))
    assert said.together == ()
    assert said.reason.endswith("; no change allowed here is enough")
    assert advice(replace(NOTE_002, depth=3), allowed=()).options == ()


def test_a_load_whose_fit_is_not_known_gets_advice_and_is_not_rejected() -> None:
    need = note_002(3).predicted.total
    unsure = advice(
        replace(NOTE_002, depth=3),
        Device(free_bytes=need, headroom_bytes=0, margin_bytes=None),
    )
    assert isinstance(unsure.stays, Unknown)
    assert rejected(arm(3), unsure) is None
    assert unsure.reason.startswith("whether depth 3, 2 slots, context 4096, KV q8_0 fits is not")
    assert unsure.options[0].lever is Lever.SLOTS
    assert unsure.options[0].enough
    unread = advice(replace(NOTE_002, depth=3), replace(DEFAULT, free_bytes=None))
    assert isinstance(unread.stays, Unknown)
    assert not any(option.enough for option in unread.options)


def test_a_margin_below_the_headroom_is_no_lever() -> None:
    said = advice(replace(NOTE_002, depth=5), replace(DEFAULT, margin_bytes=128 * MIB))
    assert Lever.MARGIN not in {option.lever for option in said.options}


def test_the_context_is_cut_no_further_than_needed_and_stays_a_multiple_of_the_slots() -> None:
    plan = replace(NOTE_002, context=65536, depth=1)
    said = advice(plan, allowed=(Lever.CONTEXT,))
    (option,) = said.options
    assert option.enough
    longer = replace(plan, context=option.load.plan.context + 256 * plan.slots)
    assert not isinstance(advice(longer).stays, Fits)
    assert option.load.plan.context % (256 * plan.slots) == 0
    assert option.cost.startswith(f"A request can hold {option.load.plan.slot_cells} tokens")
    pooled = advice(replace(plan, unified=True), allowed=(Lever.CONTEXT,))
    assert pooled.options[0].load.plan.context == option.load.plan.context - 256, "the mask"


def test_a_cache_that_is_small_already_cannot_be_made_smaller() -> None:
    four = replace(
        NOTE_002,
        depth=0,
        context=131072,
        kv_type_k=KvType.Q4_0,
        kv_type_v=KvType.Q4_0,
    )
    levers = {option.lever for option in advice(four).options}
    assert Lever.KV not in levers
    assert Lever.DRAFT_KV not in levers, "nothing is drafted"
    assert Lever.DEPTH not in levers


def test_a_change_that_gains_nothing_is_not_offered() -> None:
    """Without recurrent rows one slot less only lengthens the attention mask of the other."""
    plain = replace(PLANNING, recurrent=None)
    plan = LoadPlan(context=65536, slots=2, depth=1)
    said = advice(plan, geometry=plain)
    assert isinstance(said.stays, Evicts)
    levers = [option.lever for option in said.options]
    assert Lever.SLOTS not in levers
    assert Lever.KV in levers


def test_the_worse_of_both_verdicts_counts() -> None:
    fits = note_002(2)
    assert isinstance(fits.holds, Fits)
    assert isinstance(fits.stays, Fits)
    assert fits.holds.left_bytes > fits.stays.left_bytes
    assert fits.reason.endswith("fits with 52 MiB to spare")
    far = advice(replace(NOTE_002, context=86016, depth=3))
    assert isinstance(far.holds, Evicts)
    assert isinstance(far.stays, Evicts)
    assert far.stays.missing_bytes > far.holds.missing_bytes
    narrow = advice(replace(NOTE_002, context=86016, depth=3), replace(DEFAULT, margin_bytes=0))
    assert narrow.stays == narrow.holds
