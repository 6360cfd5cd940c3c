"""Predicted against printed memory of real starts; ``tests.bench.bench_memory`` has the grid."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mtpd.config.data import bundled_model
from mtpd.control.shapes import geometry_of
from mtpd.units import MIB
from tests.contract import printed_memory
from tuner.memory import Geometry, KvType, assumed, predict

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


DRAFT_MODEL = str(bundled_model("tiny-unchained.gguf"))


@pytest.mark.real_engine
@pytest.mark.slow
@pytest.mark.parametrize(("context", "slots", "depth"), [(4096, 1, 1), (16384, 2, 3)])
async def test_a_draft_model_takes_what_its_header_says_and_no_rows_to_go_back(
    tmp_path: Path, context: int, slots: int, depth: int
) -> None:
    draft = geometry_of(DRAFT_MODEL)
    assert isinstance(draft, Geometry)
    shape = printed_memory.geometry()
    own = printed_memory.load(context, slots, depth, KvType.F16)
    plan = replace(own, head=False, draft=draft)
    spec = ["--spec-type", "draft-simple", "--spec-draft-model", DRAFT_MODEL]
    spec += ["--spec-draft-n-max", str(depth), "--spec-draft-type-k", "f16"]
    spec += ["--spec-draft-type-v", "f16"]
    printed = await printed_memory.started(plan, home=tmp_path, spec=spec, second=True)
    found = predict(shape, plan, assumed(shape, draft))
    exact = found.weights.size + found.kv.size + found.recurrent.size + found.draft_kv.size
    assert abs(exact - printed.exact) <= 0.05 * MIB
    low, high = (one - found.overhead.size for one in (found.low, found.high))
    assert low - found.overhead.slack <= printed.whole <= high
    assert found.total > predict(shape, replace(own, depth=0), assumed(shape)).total


@pytest.mark.real_engine
@pytest.mark.slow
async def test_ngrams_take_no_memory_of_the_device(tmp_path: Path) -> None:
    plan = replace(printed_memory.load(4096, 2, 4, KvType.F16), head=False)
    spec = ["--spec-type", "ngram-mod", "--spec-ngram-mod-n-max", "4"]
    drafting = await printed_memory.started(
        plan, home=tmp_path, spec=[*spec, "--spec-ngram-mod-n-min", "4"]
    )
    plain = await printed_memory.started(replace(plan, depth=0), home=tmp_path)
    assert drafting == plain
    shape = printed_memory.geometry()
    found = predict(shape, plan, assumed(shape))
    exact = found.weights.size + found.kv.size + found.recurrent.size + found.draft_kv.size
    assert abs(exact - drafting.exact) <= 0.05 * MIB
    assert found.draft_compute.size == 0
