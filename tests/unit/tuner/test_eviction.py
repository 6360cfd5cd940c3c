"""What evicted layers cost, on the cells of real_gpu_27b.md and on note 002."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.unit.tuner.test_memory import MIB, PLANNING
from tuner.eviction import (
    LAYER_COST_H200,
    EvictedCell,
    fewest_layers,
    fit_layer_cost,
    slowdown,
)

CELLS: Final = (
    (1, (64.8, 68.5), (97.6, 98.6)),
    (4, (35.7, 36.0), (98.0, 99.0)),
    (9, (17.2, 18.7), (91.8,)),
    (5, (19.8, 19.4), (93.9, 94.6)),
    (7, (23.0, 22.9), (95.9, 95.8)),
    (10, (15.7, 11.1), (98.7, 97.2)),
    (12, (8.7, 9.3), (97.7, 95.6)),
)
"""real_gpu_27b.md, table: 66 less "offloaded", tok/s of the evicted and the resident row."""


def mean(values: tuple[float, ...]) -> float:
    return sum(values) / len(values)


def cells() -> list[EvictedCell]:
    return [
        EvictedCell(layers=layers, tps=mean(out), resident_tps=mean(stay))
        for layers, out, stay in CELLS
    ]


def test_the_shipped_layer_cost_is_that_of_the_table() -> None:
    assert fit_layer_cost(cells(), LAYER_COST_H200.source) == LAYER_COST_H200
    assert LAYER_COST_H200.share == pytest.approx(0.575, abs=1e-3)


@pytest.mark.parametrize("left_out", range(len(CELLS)))
def test_every_cell_lies_within_what_the_others_predict(left_out: int) -> None:
    every = cells()
    cell = every.pop(left_out)
    factor = slowdown(cell.layers, fit_layer_cost(every, "the others"), counted=True).factor
    assert factor.low <= cell.resident_tps / cell.tps <= factor.high


def test_note_002_evicted_layer_0_and_lost_what_one_layer_costs() -> None:
    """TUNER 3.3: depth 3 of note 002 took 1.70 times the resident step; the card is another."""
    factor = slowdown(1, LAYER_COST_H200, counted=True).factor
    assert factor.low < 1.70 < factor.high


def test_the_spread_is_a_prediction_interval_of_one_more_cell() -> None:
    """Shares 0.4 and 0.6: mean 0.5, deviation 0.1414, t(1) 12.706, root of 3/2."""
    two = [
        EvictedCell(layers=1, tps=10.0, resident_tps=14.0),
        EvictedCell(layers=2, tps=10.0, resident_tps=22.0),
    ]
    cost = fit_layer_cost(two, "two")
    assert cost.share == pytest.approx(0.5)
    assert cost.high == pytest.approx(0.5 + 12.706 * 0.02**0.5 * 1.5**0.5, rel=1e-3)
    assert cost.low == 0.0, "a layer on the CPU never makes a step faster"


def test_the_fewest_layers_hold_the_missing_bytes_and_are_no_more_than_there_are() -> None:
    layer = PLANNING.trunk_bytes / PLANNING.layers
    assert PLANNING.layers == 64
    for layers in (1, 2, 63):
        assert fewest_layers(PLANNING, round(layers * layer) - MIB) == layers
        assert fewest_layers(PLANNING, round(layers * layer) + MIB) == layers + 1
    assert fewest_layers(PLANNING, 10**12) == 64
    assert fewest_layers(replace(PLANNING, trunk_bytes=64), 2) == 2


def test_a_prediction_says_what_it_rests_on_and_whether_layers_were_counted() -> None:
    cost = replace(LAYER_COST_H200, share=0.5, low=0.4, high=0.6, source="three cells")
    assert str(slowdown(1, cost, counted=True)) == (
        "resident it is predicted to run 1.5x as fast [1.4x, 1.6x] as with 1 layer on the CPU "
        "(from three cells)"
    )
    assert "at least 2.0x as fast [1.8x, 2.2x] as with at least 2 layers" in str(
        slowdown(2, cost, counted=False)
    )
