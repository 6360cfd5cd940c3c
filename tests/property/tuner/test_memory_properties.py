from __future__ import annotations

from dataclasses import replace
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.memory import (
    QWEN35_27B_B2,
    Evicts,
    Fits,
    KvType,
    LoadPlan,
    Printed,
    assumed,
    calibrated,
    engine_fit,
    fit,
    predict,
)

MIB: Final = 2**20
ASSUMED: Final = assumed(QWEN35_27B_B2)
KINDS: Final = st.sampled_from(KvType)


@st.composite
def plans(draw: st.DrawFn) -> LoadPlan:
    return LoadPlan(
        context=draw(st.integers(min_value=1, max_value=300_000)),
        slots=draw(st.integers(min_value=1, max_value=8)),
        depth=draw(st.integers(min_value=0, max_value=8)),
        kv_type_k=draw(KINDS),
        kv_type_v=draw(KINDS),
        draft_kv_type_k=draw(KINDS),
        draft_kv_type_v=draw(KINDS),
        ubatch=draw(st.sampled_from((64, 512, 2048))),
        unified=draw(st.booleans()),
    )


@given(plans())
@settings(max_examples=60)
def test_a_deeper_draft_another_slot_or_more_context_never_needs_less(plan: LoadPlan) -> None:
    need = predict(QWEN35_27B_B2, plan, ASSUMED).total
    deeper = replace(plan, depth=plan.depth + 1)
    longer = replace(plan, context=plan.context + 256 * plan.slots)
    assert predict(QWEN35_27B_B2, deeper, ASSUMED).total > need
    assert predict(QWEN35_27B_B2, longer, ASSUMED).total > need
    same_share = replace(
        plan, slots=plan.slots + 1, context=plan.slot_cells * (plan.slots + 1), unified=False
    )
    split = replace(plan, unified=False, context=plan.slot_cells * plan.slots)
    assert (
        predict(QWEN35_27B_B2, same_share, ASSUMED).total
        > predict(QWEN35_27B_B2, split, ASSUMED).total
    )


@given(
    plans(),
    st.integers(min_value=0, max_value=40_000 * MIB),
    st.integers(min_value=0, max_value=4_000 * MIB),
    st.integers(min_value=0, max_value=2_000 * MIB),
)
@settings(max_examples=100)
def test_more_free_memory_never_removes_a_feasible_load(
    plan: LoadPlan, free: int, more: int, headroom: int
) -> None:
    predicted = predict(QWEN35_27B_B2, plan, ASSUMED)
    for rule in (fit, engine_fit):
        before, after = rule(predicted, free, headroom), rule(predicted, free + more, headroom)
        if isinstance(before, Fits):
            assert after == Fits(left_bytes=before.left_bytes + more)
        if isinstance(after, Evicts):
            assert before == Evicts(missing_bytes=after.missing_bytes + more)


@given(plans(), st.floats(min_value=1e4, max_value=1e6), st.floats(min_value=1e4, max_value=1e6))
@settings(max_examples=60)
def test_a_calibrated_prediction_repeats_what_it_was_calibrated_by(
    plan: LoadPlan, token: float, draft: float
) -> None:
    true = replace(ASSUMED, token_bytes=token, draft_token_bytes=draft, overhead_bytes=99 * MIB)
    seen = predict(QWEN35_27B_B2, plan, true)
    printed = Printed(
        compute=seen.compute.size,
        draft_compute=seen.draft_compute.size if plan.depth else None,
        measured=seen.total,
    )
    again = predict(QWEN35_27B_B2, plan, calibrated(ASSUMED, QWEN35_27B_B2, plan, printed))
    assert abs(again.compute.size - seen.compute.size) <= 1
    assert again.draft_compute.size == seen.draft_compute.size
    assert again.total == seen.total
