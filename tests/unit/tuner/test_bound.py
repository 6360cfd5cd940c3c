"""The upper bound of models that the forecast does not cover."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.bound import CAUSAL, ENCODERS, Outline, bound, outline
from tuner.geometry import KvType, LoadPlan
from tuner.types import Unknown

MIB = 2**20

LLAMA_8B = {
    "block_count": 32,
    "embedding_length": 4096,
    "feed_forward_length": 14336,
    "attention.head_count": 32,
    "attention.head_count_kv": 8,
}
BERT_LARGE = {
    "block_count": 24,
    "embedding_length": 1024,
    "feed_forward_length": 4096,
    "attention.head_count": 16,
}


def of(
    architecture: str, numbers: dict[str, Any], *, vocab: int | None = 128_256
) -> Outline | Unknown:
    facts = {f"{architecture}.{key}": value for key, value in numbers.items()}
    return outline(architecture, facts, weights_bytes=4_600 * MIB, vocab=vocab)


def known(architecture: str, numbers: dict[str, Any], *, vocab: int | None = 128_256) -> Outline:
    found = of(architecture, numbers, vocab=vocab)
    assert isinstance(found, Outline), found
    return found


def test_keys_and_values_of_an_8b_model_are_what_everybody_knows() -> None:
    found = bound(known("llama", LLAMA_8B), LoadPlan(context=8192))
    assert found.kv_bytes == 1024 * MIB, "128 KiB a token in f16"
    assert found.weights_bytes == 4_600 * MIB
    assert 258 * MIB < found.compute_bytes < 700 * MIB, "builds printed 258.5 and 560 MiB"
    assert found.total > 4_600 * MIB + 1024 * MIB + 258 * MIB
    smaller = bound(known("llama", LLAMA_8B), LoadPlan(context=8192, kv_type_k=KvType.Q8_0))
    assert smaller.kv_bytes == 512 * MIB + 512 * MIB * 34 // 64


def test_a_header_that_names_the_width_of_its_heads_is_taken_at_its_word() -> None:
    wide = LLAMA_8B | {"attention.key_length": 256, "attention.value_length": 128}
    assert bound(known("qwen3", wide), LoadPlan(context=8192)).kv_bytes == 1536 * MIB
    every = {key: value for key, value in LLAMA_8B.items() if key != "attention.head_count_kv"}
    assert bound(known("llama", every), LoadPlan(context=8192)).kv_bytes == 4096 * MIB


def test_layers_that_differ_are_added_up() -> None:
    rows = (8,) * 16 + (0,) * 16
    mixed = LLAMA_8B | {"attention.head_count_kv": rows, "feed_forward_length": (14336,) * 32}
    assert bound(known("llama", mixed), LoadPlan(context=8192)).kv_bytes == 512 * MIB
    short = LLAMA_8B | {"feed_forward_length": (14336,) * 31}
    assert isinstance(of("llama", short), Unknown), "a list that is too short says nothing"


def test_the_experts_of_one_token_count_together() -> None:
    mixed = LLAMA_8B | {"expert_used_count": 8, "expert_feed_forward_length": 4096}
    assert known("qwen3moe", mixed).feed_forward == 8 * 4096
    of_that_width = LLAMA_8B | {"expert_used_count": 2}
    assert known("llama", of_that_width).feed_forward == 2 * 14336
    assert known("llama", LLAMA_8B).feed_forward == 14336


def test_an_encoder_keeps_nothing_of_a_text_and_needs_no_vocabulary() -> None:
    model = known("bert", BERT_LARGE, vocab=None)
    near, far = (bound(model, LoadPlan(context=context)) for context in (512, 65_536))
    assert near == far
    assert near.kv_bytes == 0
    assert bound(model, LoadPlan(context=512, ubatch=2048)).compute_bytes > near.compute_bytes


@pytest.mark.parametrize("missing", LLAMA_8B.keys() - {"attention.head_count_kv"})
def test_without_a_number_that_nothing_stands_for_nothing_is_bounded(missing: str) -> None:
    found = of("llama", {key: value for key, value in LLAMA_8B.items() if key != missing})
    assert isinstance(found, Unknown)
    assert "does not say how large its layers are" in found.reason


def test_what_is_not_known_to_be_bounded_is_not() -> None:
    other = of("mamba", LLAMA_8B)
    assert other == Unknown("the memory of a model of the architecture mamba is not bounded")
    assert isinstance(of("llama", LLAMA_8B, vocab=None), Unknown)
    assert isinstance(of("llama", LLAMA_8B | {"attention.head_count": 0}), Unknown)
    assert not CAUSAL & ENCODERS
