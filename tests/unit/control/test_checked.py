"""Values whose type hints are checked all the way down."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from mtpd.control.checked import check
from mtpd.control.deciding import DepthInputs, PoolInputs
from tests.unit.control.test_recorded import DEPTH, POOL
from tuner.cost import RowCost
from tuner.plan import WorkloadPlan
from tuner.types import Start, Unknown


def test_what_the_daemon_makes_passes() -> None:
    check(DEPTH, DepthInputs)
    check(POOL, PoolInputs)
    check(replace(DEPTH, row_cost=RowCost(c=1, sd=0.1, source="a whole number")), DepthInputs)


TEXT: Any = "2"
TRUE: Any = True
TWO: Any = 2
START: Any = replace(DEPTH.history.starts[0], residency=TWO)
FLOAT: Any = 2.0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (replace(DEPTH, deepest=TEXT), "expected int, got '2'"),
        (replace(DEPTH, deepest=TRUE), "expected int, got True"),
        (replace(DEPTH, deepest=FLOAT), "expected int, got 2.0"),
        (replace(DEPTH, applied=TWO), "expected bool, got 2"),
        (replace(DEPTH, notes=(TWO,)), "expected str, got 2"),
        (replace(DEPTH, memory_bytes={TEXT: 5}), "expected Arm, got '2'"),
        (replace(DEPTH, memory_bytes={DEPTH.arms[0]: TEXT}), "expected int, got '2'"),
        (replace(DEPTH, workloads=(WorkloadPlan(name="a", prompts=TEXT),)), "expected int"),
        (replace(DEPTH, history=replace(DEPTH.history, spent_s=math.nan)), "expected float"),
        (replace(DEPTH, history=replace(DEPTH.history, starts=(START,))), "expected Resident"),
        (replace(POOL, require=frozenset({TWO})), "expected str, got 2"),
    ],
)
def test_a_value_of_another_type_is_named(wrong: object, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        check(wrong, type(wrong))


def test_every_residency_passes() -> None:
    start = Start(arm=DEPTH.arms[0], start_id="s", residency=Unknown("no log"))
    check(start, Start)
