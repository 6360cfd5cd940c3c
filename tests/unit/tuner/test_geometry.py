from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from mtpd.config.data import bundled_model
from mtpd.engine.gguf import read_header
from tuner.memory import (
    QWEN35_27B_B2,
    Geometry,
    KvType,
    LoadPlan,
    assumed,
    from_gguf,
    predict,
)
from tuner.types import Unknown

if TYPE_CHECKING:
    from mtpd.engine.gguf_types import Metadata

MIB: Final = 2**20
FACTS: Final[dict[str, Metadata]] = {
    "qwen35.block_count": 9,
    "qwen35.nextn_predict_layers": 1,
    "qwen35.embedding_length": 128,
    "qwen35.feed_forward_length": 256,
    "qwen35.attention.head_count_kv": 1,
    "qwen35.attention.key_length": 64,
    "qwen35.attention.value_length": 64,
    "qwen35.ssm.conv_kernel": 4,
    "qwen35.ssm.inner_size": 128,
    "qwen35.ssm.group_count": 2,
    "qwen35.ssm.state_size": 32,
}
TENSORS: Final = (
    ("token_embd.weight", 1000),
    ("output.weight", 500),
    ("output_norm.weight", 1),
    ("blk.0.attn_qkv.weight", 20),
    ("blk.7.ffn_up.weight", 30),
    ("blk.8.nextn.eh_proj.weight", 7),
    ("blk.8.attn_q.weight", 6),
)


def known(facts: dict[str, Metadata], architecture: str = "qwen35") -> Geometry:
    geometry = from_gguf(architecture, facts, TENSORS, vocab=1024)
    assert isinstance(geometry, Geometry)
    return geometry


def renamed(architecture: str) -> dict[str, Metadata]:
    return {key.replace("qwen35.", f"{architecture}."): value for key, value in FACTS.items()}


def test_the_bundled_model_has_the_buffers_that_the_engine_printed_for_it() -> None:
    """One slot, context 1024, f16, depth 2: KV 1.00, RS 1.23, MTP KV 0.25, tensors 3.91 MiB."""
    header = read_header(bundled_model("tiny-chained.gguf"))
    geometry = from_gguf(
        header.architecture,
        header.metadata,
        ((t.name, t.n_bytes) for t in header.tensors),
        vocab=header.vocab_size or 0,
    )
    assert isinstance(geometry, Geometry)
    predicted = predict(geometry, LoadPlan(context=1024, depth=2), assumed(geometry))
    assert predicted.kv.size / MIB == pytest.approx(1.00, abs=0.005)
    assert predicted.recurrent.size / MIB == pytest.approx(1.23, abs=0.005)
    assert predicted.draft_kv.size / MIB == pytest.approx(0.25, abs=0.005)
    assert predicted.weights.size / MIB == pytest.approx(3.91, abs=0.005), "tied: all on the device"
    assert geometry.tied
    assert geometry.layers == 16


def test_tensors_are_told_apart_by_their_role() -> None:
    geometry = known(FACTS)
    assert geometry.token_embd_bytes == 1000
    assert geometry.output_bytes == 500
    assert geometry.nextn_bytes == 13
    assert geometry.trunk_bytes == 51
    assert not geometry.tied


def test_every_fourth_layer_is_attention_unless_the_header_says_otherwise() -> None:
    assert (known(FACTS).attention_layers, known(FACTS).layers) == (2, 8)
    assert known({**FACTS, "qwen35.full_attention_interval": 2}).attention_layers == 4
    assert known({**FACTS, "qwen35.full_attention_interval": 0}).attention_layers == 2
    listed = (True, True, True, False, False, False, False, False, True)
    assert known({**FACTS, "qwen35.attention.recurrent_layers": listed}).attention_layers == 5


def test_a_model_without_ssm_keys_is_a_pure_transformer() -> None:
    plain = {key: value for key, value in FACTS.items() if ".ssm." not in key}
    assert known(plain).recurrent is None
    assert known(plain).attention_layers == 8
    assert known({**plain, "qwen35.nextn_predict_layers": "x"}).nextn_layers == 0


def test_how_a_recurrent_state_is_rolled_back_depends_on_the_architecture() -> None:
    assert known(FACTS).rollback
    assert not known(renamed("qwen3next"), "qwen3next").rollback
    other = from_gguf("mamba9", renamed("mamba9"), TENSORS, vocab=1024)
    assert other == Unknown("how mamba9 rolls its recurrent state back is not known")


@pytest.mark.parametrize("value", [None, (1, 2)])
def test_a_missing_or_uneven_fact_is_unknown(value: Metadata | None) -> None:
    facts = {k: v for k, v in FACTS.items() if k != "qwen35.attention.head_count_kv"}
    if value is not None:
        facts["qwen35.attention.head_count_kv"] = value
    assert from_gguf("qwen35", facts, TENSORS, vocab=1024) == Unknown(
        "the header has no single number for qwen35.attention.head_count_kv"
    )


def test_half_a_recurrent_shape_is_unknown() -> None:
    facts = {k: v for k, v in FACTS.items() if k != "qwen35.ssm.state_size"}
    geometry = from_gguf("qwen35", facts, TENSORS, vocab=1024)
    assert isinstance(geometry, Unknown)
    assert geometry.reason.endswith("gives only conv_kernel, inner_size, group_count of ssm")


def test_the_b2_recipe_takes_312_mib_off_an_output_matrix_in_q6_k() -> None:
    """Study 000: 14.6 GiB against 14.3 for the same model."""
    six_bit = replace(QWEN35_27B_B2, output_bytes=248320 * 5120 * 210 // 256)
    assert six_bit.with_output(KvType.Q4_0) == QWEN35_27B_B2
    saved = six_bit.output_bytes - QWEN35_27B_B2.output_bytes
    assert saved / MIB == pytest.approx(312.6, abs=0.1)
    tied = replace(QWEN35_27B_B2, output_bytes=0)
    assert tied.with_output(KvType.Q4_0).output_bytes == 0


@pytest.mark.parametrize(
    ("kind", "size"), [("f32", 128), ("bf16", 64), ("q8_0", 34), ("q5_1", 24), ("iq4_nl", 18)]
)
def test_the_cache_is_kept_in_blocks_of_32(kind: str, size: int) -> None:
    assert KvType(kind).size(32) == size
    assert {k.size(64) for k in KvType} == {256, 128, 68, 48, 44, 40, 36}
