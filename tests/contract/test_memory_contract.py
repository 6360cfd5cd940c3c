"""Predicted against printed memory of real starts; ``tests.bench.bench_memory`` has the grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.units import MIB
from tests.contract import printed_memory
from tuner.memory import KvType

if TYPE_CHECKING:
    from pathlib import Path

CORNERS = [
    (2048, 1, 5, KvType.Q8_0),
    (2048, 4, 0, KvType.F16),
    (65536, 4, 1, KvType.F16),
    (65536, 2, 5, KvType.Q8_0),
]


@pytest.mark.real_engine
@pytest.mark.slow
async def test_one_start_predicts_others_of_any_context_slots_depth_and_cache_type(
    tmp_path: Path,
) -> None:
    of = printed_memory.load(8192, 2, 2, KvType.F16)
    seen = await printed_memory.started(of, home=tmp_path)
    for corner in CORNERS:
        plan = printed_memory.load(*corner)
        printed = await printed_memory.started(plan, home=tmp_path)
        exact, whole = printed_memory.errors(plan, printed, of=of, seen=seen)
        assert abs(exact) <= 0.05 * MIB, f"{corner}: the engine rounds each line to 0.01 MiB"
        assert abs(exact) <= 0.01 * printed.exact
        assert abs(whole) <= 0.03 * printed.whole, corner
