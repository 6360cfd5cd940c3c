"""Small GGUF files with tensors of any type, and what llama-quantize makes of one."""

from __future__ import annotations

import math
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.engine.gguf import read_header
from mtpd.engine.gguf_types import BLOCKS
from tuner.memory import QWEN35_27B

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["MIXED", "quantize", "write_gguf"]

Tensors = dict[str, tuple[tuple[int, ...], str]]

MIXED: Tensors = {
    "token_embd.weight": ((256, 64), "Q4_0"),
    "output_norm.weight": ((256,), "F32"),
    "output.weight": ((256, 64), "Q6_K"),
    "blk.0.attn_q.weight": ((256, 256), "Q4_0"),
    "blk.0.ffn_down.weight": ((256, 256), "Q4_1"),
    "blk.1.nextn.eh_proj.weight": ((512, 256), "Q8_0"),
}
"""A Q4_0 file as they are published: some tensors are larger, the output above all."""

_NUMBERS = {
    "block_count": 2,
    "nextn_predict_layers": 1,
    "embedding_length": 256,
    "feed_forward_length": 256,
    "attention.head_count_kv": 1,
    "attention.key_length": 64,
    "attention.value_length": 64,
    "full_attention_interval": 4,
    "vocab_size": 64,
    "ssm.conv_kernel": QWEN35_27B.conv_kernel,
    "ssm.inner_size": 64,
    "ssm.group_count": 1,
    "ssm.state_size": 16,
}
_TYPES = {name: (number, per, size) for number, (name, per, size) in BLOCKS.items()}
_ALIGN = 32


def write_gguf(path: Path, tensors: Mapping[str, tuple[tuple[int, ...], str]]) -> Path:
    """Write a whole file of architecture qwen35; its data is zero."""
    out = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(_NUMBERS) + 1)]
    out += [_text("general.architecture"), struct.pack("<I", 8), _text("qwen35")]
    for name, value in _NUMBERS.items():
        out += [_text(f"qwen35.{name}"), struct.pack("<II", 4, value)]
    offset = 0
    for name, (shape, kind) in tensors.items():
        number, per, size = _TYPES[kind]
        out += [_text(name), struct.pack("<I", len(shape))]
        out += [struct.pack(f"<{len(shape)}Q", *shape), struct.pack("<IQ", number, offset)]
        offset += _padded(math.prod(shape) // per * size)
    head = b"".join(out)
    path.write_bytes(head + bytes(_padded(len(head)) - len(head)) + bytes(offset))
    return path


def quantize(words: Sequence[str], *, spoil: str | None = None) -> None:
    """As llama-quantize does: what is not named gets the type that the file is to have.

    Args:
        words: Its arguments.
        spoil: A tensor that is changed against the orders.
    """
    source, target, kind = words[-3:]
    orders = [words[i + 1] for i, word in enumerate(words) if word == "--tensor-type"]
    output = words[words.index("--output-tensor-type") + 1].upper()
    names = {name.upper(): name for name in _TYPES}
    made: Tensors = {}
    for tensor in read_header(Path(source)).tensors:
        wanted = tensor.type_name if len(tensor.shape) == 1 else kind
        for order in orders:
            pattern, _, named = order.partition("=")
            if re.search(pattern, tensor.name):
                wanted = names[named.upper()]
        wanted = names[output] if tensor.name == "output.weight" else wanted
        made[tensor.name] = (tensor.shape, "F16" if tensor.name == spoil else wanted)
    write_gguf(Path(target), made)


def _padded(count: int) -> int:
    return -(-count // _ALIGN) * _ALIGN


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()
