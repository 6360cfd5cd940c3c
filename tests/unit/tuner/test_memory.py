"""Predicted against printed and measured device memory.

The 27B rows are printed by the engine for a planning file of 13754 MiB (13982 with its MTP
block); the rows of the GPU are printed and measured for a file of 13754.78 (14007.69).
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tuner.footprint import VULKAN_OVERHEAD_BYTES, Calibration, Predicted, Printed, Term
from tuner.memory import (
    ENGINE_MARGIN_BYTES,
    QWEN35_27B_B2,
    Evicts,
    Fits,
    Geometry,
    KvType,
    LoadPlan,
    RecurrentGeometry,
    assumed,
    calibrated,
    engine_fit,
    feasible_loads,
    fit,
    largest,
    predict,
)
from tuner.types import Unknown

MIB: Final = 2**20
CORPUS: Final = Path(__file__).parents[2] / "corpus"
CARD: Final = 16368 * MIB
PLANNING: Final = replace(
    QWEN35_27B_B2,
    nextn_bytes=228 * MIB,
    trunk_bytes=13754 * MIB - QWEN35_27B_B2.output_bytes,
)
PER_EMBEDDING: Final = {"b10434": 5.4, "b11434": 7.4}
TINY: Final = Geometry(
    attention_layers=2,
    recurrent=RecurrentGeometry(layers=6, conv_kernel=4, inner=128, groups=2, state=32),
    nextn_layers=1,
    kv_heads=1,
    key_length=64,
    value_length=64,
    vocab=1024,
    embedding=128,
    feed_forward=256,
    token_embd_bytes=0,
    output_bytes=1,
    nextn_bytes=round(2.50 * MIB),
    trunk_bytes=round(20.09 * MIB) - 1,
)
"""The tiny model of the memory matrix; on the CPU its token embedding is a weight, too."""
NOTE_002: Final = LoadPlan(
    context=4096,
    slots=2,
    kv_type_k=KvType.Q8_0,
    kv_type_v=KvType.Q8_0,
    draft_kv_type_k=KvType.Q8_0,
    draft_kv_type_v=KvType.Q8_0,
)


def rows(name: str) -> list[dict[str, Any]]:
    read: list[dict[str, Any]] = json.loads((CORPUS / "memory" / name).read_text(encoding="utf-8"))
    return read


def matrix() -> list[dict[str, Any]]:
    return [row for build in PER_EMBEDDING for row in rows(f"{build}_fit_matrix_27b.json")]


def load_of(row: dict[str, Any]) -> LoadPlan:
    kind, draft = KvType(row.get("ctk", "f16")), KvType(row.get("ctkd", "f16"))
    return LoadPlan(
        context=row["c"],
        slots=row["np"],
        depth=row["n"],
        kv_type_k=kind,
        kv_type_v=kind,
        draft_kv_type_k=draft,
        draft_kv_type_v=draft,
        ubatch=row.get("ub", 512),
        unified=row.get("kvu", False),
    )


def printed_of(row: dict[str, Any]) -> tuple[list[int], list[int]]:
    """[total, weights, context, compute] of the main and of the MTP context, MiB."""
    contexts: list[list[int]] = row["breakdown"]
    main = max(contexts, key=lambda one: one[2])
    return main, next((one for one in contexts if one is not main), [0, 0, 0, 0])


@pytest.mark.parametrize(
    "row", matrix(), ids=lambda r: f"{r['ver']}-{load_of(r)}-ub{load_of(r).ubatch}"
)
def test_every_printed_sum_of_the_27b_is_met(row: dict[str, Any]) -> None:
    main, draft = printed_of(row)
    calibration = assumed(PLANNING, per_embedding=PER_EMBEDDING[row["ver"]])
    predicted = predict(PLANNING, load_of(row), calibration)
    assert predicted.weights.size == pytest.approx(main[1] * MIB, abs=MIB)
    assert predicted.kv.size + predicted.recurrent.size == pytest.approx(main[2] * MIB, abs=MIB)
    assert predicted.draft_kv.size == pytest.approx(draft[2] * MIB, abs=MIB)
    for term, shown in ((predicted.compute, main[3]), (predicted.draft_compute, draft[3])):
        assert -term.excess <= term.size - shown * MIB <= term.slack
    whole = main[0] + draft[2] + draft[3]
    assert predicted.printed == pytest.approx(whole * MIB, rel=0.0045), "0.44 % at most, upwards"
    assert predicted.printed >= (whole - 2) * MIB


TABLE_3: Final = {
    0: (14566, 14712, 14876, 15009),
    1: (15105, 15397, 15711, 15991),
    2: (15255, 15696, 16160, 16596),
    3: (15405, 15995, 16609, 17207),
    5: (15704, 16594, 17507, 18428),
}
"""27B-B2, f16 KV, context 8192, b11434, MiB by depth and slots."""


@pytest.mark.parametrize("depth", sorted(TABLE_3))
@pytest.mark.parametrize("slots", [1, 2, 3, 4])
def test_the_table_of_projected_sums_is_met_within_2_per_mille(depth: int, slots: int) -> None:
    predicted = predict(
        PLANNING, LoadPlan(context=8192, slots=slots, depth=depth), assumed(PLANNING)
    )
    assert predicted.printed / MIB == pytest.approx(TABLE_3[depth][slots - 1], rel=0.002)


GPU_MEASURED: Final = {0: 14379, 1: 15081, 2: 15380, 3: 15679, 4: 15979, 5: 16280}
"""Device memory of the whole-card rows at two slots, context 4096, q8_0, MiB."""
GPU_PLAN: Final = LoadPlan(context=4096, slots=2, kv_type_k=KvType.Q8_0, kv_type_v=KvType.Q8_0)


def buffers(depth: int) -> dict[str, list[float]]:
    text = (CORPUS / "gpu_logs" / f"free_b2_n{depth}.log").read_text(encoding="utf-8")
    found: dict[str, list[float]] = {}
    for kind, size in re.findall(r"Vulkan0 (\w+) buffer size =\s*([\d.]+) MiB", text):
        found.setdefault(kind, []).append(float(size))
    return found


def from_one_start(depth: int) -> Calibration:
    seen = buffers(depth)
    printed = Printed(
        compute=round(seen["compute"][0] * MIB),
        draft_compute=round(seen["compute"][-1] * MIB) if depth else None,
        measured=GPU_MEASURED[depth] * MIB,
    )
    plan = replace(GPU_PLAN, depth=depth)
    return calibrated(assumed(QWEN35_27B_B2), QWEN35_27B_B2, plan, printed)


@pytest.mark.parametrize("depth", sorted(GPU_MEASURED))
def test_the_exact_terms_are_the_buffers_that_a_real_gpu_printed(depth: int) -> None:
    seen = buffers(depth)
    predicted = predict(QWEN35_27B_B2, replace(GPU_PLAN, depth=depth), assumed(QWEN35_27B_B2))
    assert predicted.weights.size / MIB == pytest.approx(seen["model"][0], abs=0.01)
    assert predicted.kv.size / MIB == seen["KV"][0]
    assert predicted.recurrent.size / MIB == seen["RS"][0]
    assert predicted.draft_kv.size / MIB == (seen["KV"][1] if depth else 0)


@pytest.mark.parametrize("start", [1, 2, 5])
@pytest.mark.parametrize("depth", sorted(GPU_MEASURED))
def test_one_start_calibrates_every_other_depth_within_6_mib_of_the_measured_memory(
    start: int, depth: int
) -> None:
    predicted = predict(QWEN35_27B_B2, replace(GPU_PLAN, depth=depth), from_one_start(start))
    assert predicted.total / MIB == pytest.approx(GPU_MEASURED[depth], abs=6)
    assert predicted.low <= GPU_MEASURED[depth] * MIB <= predicted.high


@pytest.mark.parametrize(
    ("slots", "depth", "measured"),
    [(2, 2, 15378), (2, 3, 15677), (1, 3, 15083), (1, 4, 15232), (2, 5, 16278)],
)
def test_one_start_calibrates_other_slots_on_a_16_gib_card_too(
    slots: int, depth: int, measured: int
) -> None:
    """The fully resident rows of the card that was cut down to 16 GiB."""
    plan = replace(GPU_PLAN, slots=slots, depth=depth)
    predicted = predict(QWEN35_27B_B2, plan, from_one_start(2))
    assert predicted.total / MIB == pytest.approx(measured, abs=6)


def test_the_overhead_of_the_driver_is_one_constant_if_the_doubled_buffer_is_counted_once() -> None:
    overheads = [from_one_start(depth).overhead_bytes / MIB for depth in GPU_MEASURED]
    assert overheads == pytest.approx([54] * 6, abs=1.5)
    assert pytest.approx(54 * MIB) == VULKAN_OVERHEAD_BYTES
    summed_up = sum(buffers(2)["compute"]) + sum(buffers(2)["model"]) + sum(buffers(2)["RS"])
    assert GPU_MEASURED[2] - summed_up - sum(buffers(2)["KV"]) < -75, "the trap"


def test_without_a_start_the_measured_memory_is_within_1_percent() -> None:
    for depth, measured in GPU_MEASURED.items():
        plan = replace(GPU_PLAN, depth=depth)
        predicted = predict(QWEN35_27B_B2, plan, assumed(QWEN35_27B_B2))
        assert predicted.total / MIB == pytest.approx(measured, rel=0.01)
        assert predicted.low <= measured * MIB <= predicted.high


def test_what_was_not_printed_stays_as_it_was() -> None:
    base = assumed(QWEN35_27B_B2)
    plan = replace(GPU_PLAN, depth=0)
    only = calibrated(base, QWEN35_27B_B2, plan, Printed(compute=round(134.28 * MIB)))
    assert only.draft_token_bytes == base.draft_token_bytes
    assert (only.overhead_bytes, only.overhead_error_bytes) == (
        base.overhead_bytes,
        base.overhead_error_bytes,
    )
    assert only.source == "calibrated by a start"
    assert predict(QWEN35_27B_B2, plan, only).compute.size == round(134.28 * MIB)


@pytest.mark.parametrize("build", ["b10434", "b11434"])
def test_112_runs_of_a_tiny_model_follow_from_one_of_them(build: str) -> None:
    """Rounded to 0.01 MiB by the engine; the compute buffers from the first run with a head."""
    runs = [row for row in rows("memory_matrix_tiny.json") if row["ver"] == build]
    first = next(row for row in runs if row["n"])
    printed = Printed(
        compute=round(first["comp"] * MIB), draft_compute=round(first["dcomp"][-1] * MIB)
    )
    calibration = calibrated(assumed(TINY), TINY, load_of(first), printed)
    assert len(runs) == 56
    for row in runs:
        predicted = predict(TINY, load_of(row), calibration)
        assert predicted.weights.size / MIB == pytest.approx(row["model"], abs=0.01)
        assert predicted.kv.size / MIB == pytest.approx(row["kv"], abs=0.01)
        assert predicted.recurrent.size / MIB == pytest.approx(row["rs"], abs=0.01)
        assert predicted.draft_kv.size / MIB == pytest.approx(row["dkv"], abs=0.01)
        names = ("model", "kv", "rs", "comp", "dkv")
        whole = sum(row[name] for name in names) + (row["dcomp"][-1] if row["dcomp"] else 0)
        assert predicted.printed / MIB == pytest.approx(whole, rel=0.03)


def test_depth_adds_recurrent_rows_and_nothing_else() -> None:
    calibration = assumed(QWEN35_27B_B2)
    one, five = (
        predict(QWEN35_27B_B2, LoadPlan(context=8192, slots=1, depth=depth), calibration)
        for depth in (1, 5)
    )
    assert five.total - one.total == 4 * 156893184  # 149.625 MiB
    assert five.draft_kv == one.draft_kv


def test_a_model_without_rollback_rows_keeps_one_row_per_slot() -> None:
    plain = replace(QWEN35_27B_B2, rollback=False)
    plan = LoadPlan(context=4096, slots=2, depth=3)
    assert predict(plain, plan, assumed(plain)).recurrent.size / MIB == 299.25


def test_a_pure_transformer_has_no_recurrent_rows() -> None:
    plain = replace(QWEN35_27B_B2, recurrent=None)
    predicted = predict(plain, LoadPlan(context=4096, depth=2), assumed(plain))
    assert predicted.recurrent == Term(size=0, source="no recurrent layers")
    assert plain.layers == 16


def test_every_term_says_what_it_rests_on() -> None:
    predicted = predict(QWEN35_27B_B2, LoadPlan(context=4096, depth=2), assumed(QWEN35_27B_B2))
    assert all(term.source for term in predicted.terms)
    exact = (predicted.weights, predicted.kv, predicted.recurrent, predicted.draft_kv)
    assert all(term.slack == term.excess == 0 for term in exact)
    assert predicted.low < predicted.total < predicted.high


def note_002(depth: int, slots: int = 2) -> Predicted:
    plan = replace(NOTE_002, slots=slots, depth=depth)
    return predict(PLANNING, plan, assumed(PLANNING))


def test_the_default_margin_of_the_engine_evicts_depth_3_of_note_002_although_it_fits() -> None:
    """Printed: depth 3 needs 15592 of 16368 MiB, 248 too many for the margin of 1024."""
    assert note_002(3).printed / MIB == pytest.approx(15592, abs=2)
    assert isinstance(engine_fit(note_002(2), CARD), Fits)
    verdict = engine_fit(note_002(3), CARD)
    assert isinstance(verdict, Evicts)
    assert verdict.missing_bytes / MIB == pytest.approx(248, abs=2)
    assert isinstance(fit(note_002(3), CARD, 256 * MIB), Fits)
    assert isinstance(engine_fit(note_002(3), CARD, 256 * MIB), Fits)
    assert isinstance(engine_fit(note_002(3, slots=1), CARD), Fits)
    assert ENGINE_MARGIN_BYTES == 1024 * MIB


def test_a_prediction_within_its_error_decides_nothing() -> None:
    total = note_002(3).total
    verdict = fit(note_002(3), total, 0)
    assert isinstance(verdict, Unknown)
    assert verdict.reason.startswith("the prediction of 15")
    assert fit(note_002(3), note_002(3).high, 0) == Fits(left_bytes=note_002(3).high - total)
    assert isinstance(fit(note_002(3), note_002(3).high - 1, 0), Unknown)
    assert isinstance(fit(note_002(3), note_002(3).low, 0), Unknown)
    lacking = fit(note_002(3), note_002(3).low - 1, 0)
    assert lacking == Evicts(missing_bytes=total - note_002(3).low + 1)


def test_what_is_not_known_stays_unknown() -> None:
    nothing = Unknown("no header")
    assert fit(nothing, CARD, 0) == nothing
    assert engine_fit(nothing, CARD) == nothing
    assert fit(note_002(1), None, 0) == Unknown("the free device memory is not known")


def test_slots_and_depth_are_chosen_jointly_because_one_slot_less_buys_depth() -> None:
    loads = feasible_loads(
        PLANNING,
        assumed(PLANNING),
        NOTE_002,
        free_bytes=CARD,
        headroom_bytes=700 * MIB,
        contexts=(4096, 32768),
        slots=(2, 1),
        depths=(3, 2, 1, 0, 4, 5),
    )
    assert len(loads) == 24
    best = {(load.plan.context, load.plan.slots, load.plan.depth) for load in largest(loads)}
    assert best == {(4096, 1, 5), (4096, 2, 2), (32768, 2, 0)}
    assert largest([load for load in loads if load.plan.depth == 5 and load.plan.slots == 2]) == ()


def test_a_load_that_no_engine_can_be_started_with_is_refused() -> None:
    for context, slots, depth, ubatch in ((0, 1, 0, 1), (1, 0, 0, 1), (1, 1, -1, 1), (1, 1, 0, 0)):
        with pytest.raises(ValueError, match="context, slots and ubatch must be >= 1"):
            LoadPlan(context=context, slots=slots, depth=depth, ubatch=ubatch)
    assert str(LoadPlan(context=4096)) == "depth 0, 1 slot, context 4096, KV f16"


def test_a_share_of_the_context_is_padded_to_256_cells_per_slot() -> None:
    split = LoadPlan(context=8192, slots=3)
    assert (split.slot_cells, split.cells) == (2816, 8448)
    pooled = replace(split, unified=True)
    assert (pooled.slot_cells, pooled.cells) == (8192, 8192)
