"""Slots, context and depth together, on note 002's card and the acceptances of study 000."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.unit.tuner.test_memory import CARD, MIB, NOTE_002, PLANNING
from tuner.advisor import Device, Speed
from tuner.joint import JointChoice, choose_load
from tuner.memory import LoadPlan, assumed

DEFAULT: Final = Device(free_bytes=CARD, headroom_bytes=256 * MIB)
TIGHT: Final = replace(DEFAULT, margin_bytes=256 * MIB)
HEAD_38: Final = Speed(alphas=(0.93, 0.74, 0.74), row_cost=0.41)
"""TUNER 3.3: 46.61 tok/s at depth 2 and 45.44 at depth 3, over 32.4."""
CHEAP_ROWS: Final = Speed(alphas=(0.93, 0.74, 0.74, 0.7), row_cost=0.15)


def chosen(
    speed: Speed,
    device: Device = DEFAULT,
    plan: LoadPlan = NOTE_002,
    slots: tuple[int, ...] = (1,),
    contexts: tuple[int, ...] = (),
) -> JointChoice:
    return choose_load(
        PLANNING,
        plan,
        assumed(PLANNING),
        device,
        speed,
        depths=range(6),
        slots=slots,
        contexts=contexts,
    )


def test_one_slot_less_buys_a_depth_where_rows_are_cheap() -> None:
    """Two slots stay at depth 2 under the default margin; depth 4 is within 2 % of depth 3."""
    said = chosen(CHEAP_ROWS)
    assert said.chosen is not None
    assert (said.chosen.plan.slots, said.chosen.plan.depth) == (2, 2)
    assert [(t.plan.slots, t.plan.depth) for t in said.trades] == [(1, 3)]
    assert said.reason == (
        "depth 2, 2 slots, context 4096, KV q8_0 is the fastest that stays on the device, 2.01x "
        "depth 0 (predicted), with 52 MiB to spare; 1 slot and a context of 4096 would buy depth "
        "3, 1.07x of that (predicted)"
    )


def test_a_depth_that_does_not_pay_is_not_bought() -> None:
    said = chosen(HEAD_38)
    assert said.chosen is not None
    assert said.chosen.plan.depth == 2
    assert said.trades == ()
    assert said.reason.endswith("with 52 MiB to spare")


def test_without_the_margin_two_slots_go_as_deep() -> None:
    said = chosen(CHEAP_ROWS, TIGHT)
    assert said.chosen is not None
    assert (said.chosen.plan.slots, said.chosen.plan.depth) == (2, 3)
    assert said.trades == ()


def test_less_context_buys_a_depth_too_and_only_unbeaten_trades_are_offered() -> None:
    long = replace(NOTE_002, context=16384)
    said = chosen(CHEAP_ROWS, plan=long, slots=(1,), contexts=(4096, 8192))
    assert said.chosen is not None
    assert said.chosen.plan.context == 16384
    offers = [(t.plan.slots, t.plan.context, t.plan.depth) for t in said.trades]
    assert len(offers) > 1
    for one in said.trades:
        assert one.gain > said.chosen.gain * 1.02
        for other in said.trades:
            smaller = other.plan.slots <= one.plan.slots and other.plan.context <= one.plan.context
            assert other is one or not smaller or other.gain > one.gain
    assert [t.gain for t in said.trades] == sorted((t.gain for t in said.trades), reverse=True)


def test_if_the_wanted_load_never_stays_the_trade_is_all_there_is() -> None:
    huge = replace(NOTE_002, context=131072)
    said = chosen(HEAD_38, plan=huge, slots=(), contexts=(8192,))
    assert said.chosen is None
    assert said.reason.startswith(
        "no depth stays on the device with 2 slots and a context of 131072; 2 slots and a "
        "context of 8192 would buy depth "
    )
    assert not said.reason.endswith("(predicted)"), "there is nothing to compare with"
    nothing = chosen(HEAD_38, plan=huge, slots=())
    assert nothing.trades == ()
    assert nothing.reason == "no depth stays on the device with 2 slots and a context of 131072"


def test_depths_whose_acceptance_is_not_known_are_not_considered() -> None:
    said = chosen(Speed(alphas=(0.93,), row_cost=0.1), TIGHT, slots=())
    assert said.chosen is not None
    assert said.chosen.plan.depth == 1
    assert said.chosen.gain == pytest.approx(1.93 / 1.1)


def test_within_2_percent_the_shallower_depth_leaves_more_memory() -> None:
    even = Speed(alphas=(0.9, 0.9 * 0.01), row_cost=0.0)
    said = chosen(even, slots=())
    assert said.chosen is not None
    assert said.chosen.plan.depth == 1, "depth 2 would be 0.4 % faster"


def test_a_trade_within_2_percent_is_no_trade() -> None:
    """E(3) is 1.5 % and E(4) 3 % above E(2); within 2 % of the best depth 3 is the shallowest."""
    slow_gain = Speed(alphas=(0.9, 0.9, 0.05025, 1.0), row_cost=0.0)
    one = chosen(slow_gain, plan=replace(NOTE_002, slots=1), slots=())
    assert one.chosen is not None
    assert one.chosen.plan.depth == 3
    two = chosen(slow_gain)
    assert two.chosen is not None
    assert two.chosen.plan.depth == 2
    assert one.chosen.gain / two.chosen.gain == pytest.approx(1.015, abs=1e-3)
    assert two.trades == ()
