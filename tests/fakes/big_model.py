"""A GGUF header of a 27B hybrid with its MTP block, without the weights."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tuner.memory import QWEN35_27B, QWEN35_27B_B2

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_27b"]

_BYTES = 24
"""ggml's 8-bit integers: one byte per element, so a shape of n is a tensor of n bytes."""


def write_27b(path: Path, *, blocks: int = 65, mtp: int = 1) -> Path:
    """Write the header of the file that note 002's card was measured with (B2 recipe).

    Args:
        path: The file.
        blocks: ``block_count``, the MTP blocks included.
        mtp: ``nextn_predict_layers``.
    """
    model, state = QWEN35_27B_B2, QWEN35_27B
    numbers = {
        "block_count": blocks,
        "nextn_predict_layers": mtp,
        "embedding_length": model.embedding,
        "feed_forward_length": model.feed_forward,
        "attention.head_count_kv": model.kv_heads,
        "attention.key_length": model.key_length,
        "attention.value_length": model.value_length,
        "full_attention_interval": 4,
        "vocab_size": model.vocab,
        "ssm.conv_kernel": state.conv_kernel,
        "ssm.inner_size": state.inner,
        "ssm.group_count": state.groups,
        "ssm.state_size": state.state,
    }
    tensors = {
        "token_embd.weight": model.token_embd_bytes,
        "output.weight": model.output_bytes,
        "blk.0.everything.weight": model.trunk_bytes,
        **({"blk.64.nextn.everything.weight": model.nextn_bytes} if mtp else {}),
    }
    out = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(numbers) + 1)]
    out += [_text("general.architecture"), struct.pack("<I", 8), _text("qwen35")]
    for name, value in numbers.items():
        out += [_text(f"qwen35.{name}"), struct.pack("<II", 4, value)]
    offset = 0
    for name, size in tensors.items():
        out += [_text(name), struct.pack("<IQIQ", 1, size, _BYTES, offset)]
        offset += -(-size // 32) * 32
    path.write_bytes(b"".join(out))
    return path


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()
