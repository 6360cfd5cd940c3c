"""An upper bound never falls where a load grows, and never undercuts what is exact."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tuner.bound import CAUSAL, ENCODERS, Outline, bound, outline
from tuner.geometry import KvType, LoadPlan
from tuner.memory import assumed, from_gguf, predict
from tuner.types import Unknown

facts = st.fixed_dictionaries(
    {
        "block_count": st.integers(1, 100),
        "embedding_length": st.integers(1, 256).map(lambda n: 64 * n),
        "feed_forward_length": st.integers(1, 512).map(lambda n: 64 * n),
        "attention.head_count": st.integers(1, 64),
        "attention.head_count_kv": st.integers(1, 64),
        "attention.key_length": st.integers(1, 8).map(lambda n: 32 * n),
        "attention.value_length": st.integers(1, 8).map(lambda n: 32 * n),
    }
)
plans = st.builds(
    LoadPlan,
    context=st.integers(1, 131_072),
    slots=st.integers(1, 8),
    kv_type_k=st.sampled_from(KvType),
    kv_type_v=st.sampled_from(KvType),
    ubatch=st.integers(1, 4096),
)
anything = st.one_of(
    st.integers(-5, 2**40), st.floats(), st.booleans(), st.text(), st.tuples(st.integers(-5, 9))
)


def known(architecture: str, numbers: dict[str, int], vocab: int) -> Outline:
    named = {f"{architecture}.{key}": value for key, value in numbers.items()}
    found = outline(architecture, named, weights_bytes=1, vocab=vocab)
    assert isinstance(found, Outline)
    return found


@given(st.sampled_from(sorted(CAUSAL | ENCODERS)), facts, st.integers(1, 300_000), plans)
def test_a_larger_load_is_never_bounded_lower(
    architecture: str, numbers: dict[str, int], vocab: int, plan: LoadPlan
) -> None:
    model = known(architecture, numbers, vocab)
    here = bound(model, plan)
    assert min(here.weights_bytes, here.compute_bytes, here.driver_bytes) > 0
    assert (here.kv_bytes > 0) == model.causal
    for larger in (
        replace(plan, context=2 * plan.context),
        replace(plan, ubatch=2 * plan.ubatch),
        replace(plan, kv_type_k=KvType.F32, kv_type_v=KvType.F32),
    ):
        assert bound(model, larger).total >= here.total


@given(st.sampled_from(sorted(CAUSAL)), facts, st.integers(1, 300_000), plans)
def test_where_there_is_a_forecast_its_cache_is_the_same_and_its_work_buffer_no_larger(
    architecture: str, numbers: dict[str, int], vocab: int, plan: LoadPlan
) -> None:
    named = {f"{architecture}.{key}": value for key, value in numbers.items()}
    geometry = from_gguf(architecture, named, [], vocab=vocab)
    assert not isinstance(geometry, Unknown)
    forecast = predict(geometry, plan, assumed(geometry))
    here = bound(known(architecture, numbers, vocab), plan)
    assert abs(here.kv_bytes - forecast.kv.size) <= plan.cells * numbers["block_count"]
    # Its figure for output rows is fitted to larger vocabularies and batches than the least.
    if plan.ubatch >= 16 * plan.slots:
        assert here.compute_bytes >= forecast.compute.size


@given(
    st.sampled_from(sorted(CAUSAL | ENCODERS)),
    st.dictionaries(
        st.sampled_from(
            [
                *("block_count", "embedding_length", "feed_forward_length"),
                *("attention.head_count", "attention.head_count_kv", "attention.key_length"),
                *("expert_used_count", "expert_feed_forward_length"),
            ]
        ),
        anything,
    ),
    st.one_of(st.none(), st.integers(1, 300_000)),
)
def test_any_header_is_bounded_or_not_and_never_raises(
    architecture: str, numbers: dict[str, object], vocab: int | None
) -> None:
    named = {f"{architecture}.{key}": value for key, value in numbers.items()}
    found = outline(architecture, named, weights_bytes=0, vocab=vocab)  # type: ignore[arg-type]  # any JSON
    if isinstance(found, Outline):
        assert bound(found, LoadPlan(context=4096)).total > 0
