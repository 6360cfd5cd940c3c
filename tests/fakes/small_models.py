"""Tiny model files that engines load: an encoder as embedding models are, and a dense llama."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, PoolingType

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["EMBEDDING", "FEED_FORWARD", "HEADS", "LAYERS", "write_bert", "write_llama"]

EMBEDDING, HEADS, LAYERS, FEED_FORWARD, TRAINED = 64, 4, 2, 256, 2048
_LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]


class _Model:
    """A file that grows by random tensors, the same each time."""

    def __init__(self, path: Path, architecture: str) -> None:
        self.path, self._random = path, random.Random(7)  # noqa: S311 - weights, no secrets
        self.out = GGUFWriter(path, architecture)
        self.out.add_block_count(LAYERS)
        self.out.add_context_length(TRAINED)
        self.out.add_embedding_length(EMBEDDING)
        self.out.add_feed_forward_length(FEED_FORWARD)
        self.out.add_head_count(HEADS)

    def tensor(self, name: str, *shape: int, ones: bool = False) -> None:
        rng = np.random.default_rng(self._random.randrange(2**32))
        data = np.ones(shape) if ones else rng.normal(0.0, 0.05, shape)
        self.out.add_tensor(name, data.astype(np.float32), raw_dtype=GGMLQuantizationType.F32)

    def both(self, name: str, *shape: int, ones: bool = False) -> None:
        """A weight and its bias."""
        self.tensor(f"{name}.weight", *shape, ones=ones)
        self.tensor(f"{name}.bias", shape[0])

    def close(self) -> Path:
        self.out.write_header_to_file()
        self.out.write_kv_data_to_file()
        self.out.write_tensors_to_file()
        self.out.close()
        return self.path


def write_bert(path: Path) -> Path:
    """An encoder with a word-piece vocabulary of letters; its header names no vocabulary size."""
    model = _Model(path, "bert")
    model.out.add_layer_norm_eps(1e-12)
    model.out.add_causal_attention(value=False)
    model.out.add_pooling_type(PoolingType.MEAN)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *(f"\N{LOWER ONE EIGHTH BLOCK}{one}" for one in _LETTERS), *_LETTERS]
    model.out.add_tokenizer_model("bert")
    model.out.add_token_list(words)
    model.out.add_token_types([3] * len(special) + [1] * (2 * len(_LETTERS)))
    model.out.add_token_type_count(2)
    model.out.add_pad_token_id(0)
    model.out.add_unk_token_id(1)
    model.out.add_bos_token_id(2)
    model.out.add_sep_token_id(3)
    model.out.add_eos_token_id(3)
    model.out.add_mask_token_id(4)
    model.tensor("token_embd.weight", len(words), EMBEDDING)
    model.tensor("token_types.weight", 2, EMBEDDING)
    model.tensor("position_embd.weight", TRAINED, EMBEDDING)
    model.both("token_embd_norm", EMBEDDING, ones=True)
    for number in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            model.both(f"blk.{number}.{name}", EMBEDDING, EMBEDDING)
        model.both(f"blk.{number}.attn_output_norm", EMBEDDING, ones=True)
        model.both(f"blk.{number}.ffn_up", FEED_FORWARD, EMBEDDING)
        model.both(f"blk.{number}.ffn_down", EMBEDDING, FEED_FORWARD)
        model.both(f"blk.{number}.layer_output_norm", EMBEDDING, ones=True)
    return model.close()


def write_llama(path: Path) -> Path:
    """A dense model with half as many heads for keys; its header leaves out their width."""
    model = _Model(path, "llama")
    model.out.add_head_count_kv(HEADS // 2)
    model.out.add_layer_norm_rms_eps(1e-5)
    model.out.add_rope_dimension_count(EMBEDDING // HEADS)
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{code:02X}>" for code in range(256))]
    pieces += [f"\N{LOWER ONE EIGHTH BLOCK}{one}" for one in _LETTERS] + _LETTERS
    kinds = [2, 3, 3, *[6] * 256, *[1] * (2 * len(_LETTERS))]
    model.out.add_tokenizer_model("llama")
    model.out.add_token_list(pieces)
    model.out.add_token_scores([0.0] * len(pieces))
    model.out.add_token_types(kinds)
    model.out.add_bos_token_id(1)
    model.out.add_eos_token_id(2)
    model.out.add_unk_token_id(0)
    half = EMBEDDING // 2
    model.tensor("token_embd.weight", len(pieces), EMBEDDING)
    model.tensor("output_norm.weight", EMBEDDING, ones=True)
    model.tensor("output.weight", len(pieces), EMBEDDING)
    for number in range(LAYERS):
        for name, rows in (("attn_q", EMBEDDING), ("attn_k", half), ("attn_v", half)):
            model.tensor(f"blk.{number}.{name}.weight", rows, EMBEDDING)
        model.tensor(f"blk.{number}.attn_output.weight", EMBEDDING, EMBEDDING)
        for name in ("attn_norm", "ffn_norm"):
            model.tensor(f"blk.{number}.{name}.weight", EMBEDDING, ones=True)
        for name in ("ffn_gate", "ffn_up"):
            model.tensor(f"blk.{number}.{name}.weight", FEED_FORWARD, EMBEDDING)
        model.tensor(f"blk.{number}.ffn_down.weight", EMBEDDING, FEED_FORWARD)
    return model.close()
