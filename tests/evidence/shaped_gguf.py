"""A GGUF file with the shape of the 27B hybrid of both studies, made in seconds.

Every matrix of the trunk is zero and lies in the file as a hole, so memory and compute are
those of the real model. The text is a chain: the token after t is fixed, because the output
row of the successor is the embedding of t. The MTP head sees the first half of an embedding
only; tokens whose successor is written into the second half are hard for it, and their
share sets the acceptance. Text and acceptance are by construction, speed and memory are real.

Layout of tensors and keys: the qwen35 loader of llama.cpp b11434.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Quant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

__all__ = ["BIG", "SMALL", "THIRD", "Shape", "write"]

_ACTIVE: Final = 1024
"""Tokens that occur in texts; the others have zero rows and are never chosen."""

_SPECIAL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE: Final = (
    "{%- for m in messages -%}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + "
    "'<|im_end|>\\n' }}{%- endfor -%}{%- if add_generation_prompt -%}"
    "{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)
_LETTERS: Final = "etaoinshrdlucmfwypvbgkjqxz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Dimensions of a model, named as in its header."""

    layers: int
    width: int
    feed_forward: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    ssm_state: int
    ssm_groups: int
    ssm_rank: int
    interval: int = 4
    conv: int = 4

    @property
    def ssm_inner(self) -> int:
        """Values of all linear heads together."""
        return self.ssm_state * self.ssm_rank


BIG: Final = Shape(
    layers=64,
    width=5120,
    feed_forward=17408,
    vocab=248320,
    heads=24,
    kv_heads=4,
    head_dim=256,
    ssm_state=128,
    ssm_groups=16,
    ssm_rank=48,
)
"""The 27B hybrid, as the engine prints it (print_info lines of tests/corpus/gpu_logs)."""

THIRD: Final = replace(BIG, layers=20)
"""A third of it, so that two fit on one card and a third does not."""

SMALL: Final = Shape(
    layers=8,
    width=512,
    feed_forward=1024,
    vocab=2048,
    heads=4,
    kv_heads=2,
    head_dim=64,
    ssm_state=32,
    ssm_groups=4,
    ssm_rank=8,
)
"""The same construction for a processor, to try the file before it is used."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    quant: Quant
    data: NDArray[np.uint8] | None = None
    """First bytes of the tensor; the rest, or all of it, is zero."""

    @property
    def size(self) -> int:
        block, size = gguf.GGML_QUANT_SIZES[self.quant]
        return int(np.prod(self.shape)) // block * size


def write(path: Path, shape: Shape, *, hard: float, seed: int = 1) -> None:
    """Write the model.

    Args:
        path: Where to; replaced.
        shape: Dimensions.
        hard: Share of tokens whose successor the head cannot see: about 1 - alpha_i.
        seed: Of embeddings and of the chain.
    """
    names, kinds, merges = _vocabulary(shape.vocab)
    rng = np.random.default_rng(seed)
    embedding, output = _chain(rng, shape.width, hard, _printable(names))
    tensors = [
        _Tensor("token_embd.weight", (shape.vocab, shape.width), Quant.Q4_0, _quant(embedding)),
        _Tensor("output_norm.weight", (shape.width,), Quant.F32, _ones(shape.width)),
        _Tensor("output.weight", (shape.vocab, shape.width), Quant.Q4_0, _quant(output)),
    ]
    for layer in range(shape.layers):
        full = (layer + 1) % shape.interval == 0
        tensors += _attention(layer, shape) if full else _recurrent(layer, shape)
    tensors += _attention(shape.layers, shape) + _head(shape)
    writer = gguf.GGUFWriter(path, "qwen35")
    _keys(writer, shape, names, kinds, merges)
    for tensor in tensors:
        writer.add_tensor_info(
            tensor.name, tensor.shape, np.dtype(np.float32), tensor.size, raw_dtype=tensor.quant
        )
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    _fill(path, tensors)


def _fill(path: Path, tensors: list[_Tensor]) -> None:
    """Put the data behind the header, zeros as holes."""
    align = gguf.GGUF_DEFAULT_ALIGNMENT
    with path.open("r+b") as file:
        at = _padded(file.seek(0, 2), align)
        for tensor in tensors:
            if tensor.data is not None:
                file.seek(at)
                file.write(tensor.data.tobytes())
            at += _padded(tensor.size, align)
        file.truncate(at)


def _padded(size: int, align: int) -> int:
    return -(-size // align) * align


def _chain(
    rng: np.random.Generator, width: int, hard: float, printable: list[int]
) -> tuple[Matrix, Matrix]:
    """Embedding and output rows of the active tokens; one cycle through the printable ones."""
    half = width // 2
    embedding = rng.standard_normal((_ACTIVE, width), dtype=np.float32)
    output = np.zeros((_ACTIVE, width), dtype=np.float32)
    cycle = rng.permutation(printable)
    follows = {int(a): int(b) for a, b in zip(cycle, np.roll(cycle, -1), strict=True)}
    blind = set(rng.choice(cycle, size=round(hard * len(cycle)), replace=False).tolist())
    for token in range(_ACTIVE):
        after = follows.get(token, int(cycle[token % len(cycle)]))
        if token in follows and token in blind:
            # The head, which sees the first half only, is led to another token.
            output[after, half:] += 2 * embedding[token, half:]
            astray = int(rng.choice([t for t in printable if t != after]))
            output[astray, :half] += 0.5 * embedding[token, :half]
        else:
            output[after, :half] += embedding[token, :half]
    return embedding, output


def _recurrent(layer: int, shape: Shape) -> list[_Tensor]:
    width, inner = shape.width, shape.ssm_inner
    keys = shape.ssm_state * shape.ssm_groups
    mixed = 2 * keys + inner
    matrices = {
        "attn_qkv.weight": (mixed, width),
        "attn_gate.weight": (inner, width),
        "ssm_alpha.weight": (shape.ssm_rank, width),
        "ssm_beta.weight": (shape.ssm_rank, width),
        "ssm_out.weight": (width, inner),
    }
    vectors = {
        "ssm_conv1d.weight": (mixed, shape.conv),
        "ssm_dt.bias": (shape.ssm_rank,),
        "ssm_a": (shape.ssm_rank,),
        "ssm_norm.weight": (shape.ssm_state,),
    }
    return _block(layer, shape, matrices, vectors)


def _attention(layer: int, shape: Shape) -> list[_Tensor]:
    width, dim = shape.width, shape.head_dim
    matrices = {
        "attn_q.weight": (2 * dim * shape.heads, width),
        "attn_k.weight": (dim * shape.kv_heads, width),
        "attn_v.weight": (dim * shape.kv_heads, width),
        "attn_output.weight": (width, dim * shape.heads),
    }
    return _block(
        layer, shape, matrices, {"attn_q_norm.weight": (dim,), "attn_k_norm.weight": (dim,)}
    )


def _block(
    layer: int,
    shape: Shape,
    own_matrices: Mapping[str, tuple[int, ...]],
    own_vectors: Mapping[str, tuple[int, ...]],
) -> list[_Tensor]:
    width, wide = shape.width, shape.feed_forward
    matrices = {
        **own_matrices,
        "ffn_gate.weight": (wide, width),
        "ffn_up.weight": (wide, width),
        "ffn_down.weight": (width, wide),
    }
    vectors = {
        "attn_norm.weight": (width,),
        "post_attention_norm.weight": (width,),
        **own_vectors,
    }
    return [
        *(_Tensor(f"blk.{layer}.{name}", dims, Quant.F32) for name, dims in vectors.items()),
        *(_Tensor(f"blk.{layer}.{name}", dims, Quant.Q4_0) for name, dims in matrices.items()),
    ]


def _head(shape: Shape) -> list[_Tensor]:
    """The MTP head: the first half of the token's embedding passes through."""
    width = shape.width
    project = np.zeros((width, 2 * width), dtype=np.float32)
    half = np.arange(width // 2)
    project[half, half] = 1.0
    prefix = f"blk.{shape.layers}.nextn"
    norms = ("enorm", "hnorm", "shared_head_norm")
    return [
        _Tensor(f"{prefix}.eh_proj.weight", project.shape, Quant.Q4_0, _quant(project)),
        *(_Tensor(f"{prefix}.{n}.weight", (width,), Quant.F32, _ones(width)) for n in norms),
    ]


def _keys(
    writer: gguf.GGUFWriter, shape: Shape, names: list[str], kinds: list[int], merges: list[str]
) -> None:
    writer.add_name(f"zero-trunk-{shape.layers}x{shape.width}")
    writer.add_block_count(shape.layers + 1)
    writer.add_context_length(262144)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e7)
    turned = shape.head_dim // 4
    first, second = (turned // 2 + 2) // 3, (turned // 2 + 1) // 3
    writer.add_rope_dimension_count(turned)
    writer.add_rope_dimension_sections([first, second, turned // 2 - first - second, 0])
    writer.add_ssm_conv_kernel(shape.conv)
    writer.add_ssm_state_size(shape.ssm_state)
    writer.add_ssm_group_count(shape.ssm_groups)
    writer.add_ssm_time_step_rank(shape.ssm_rank)
    writer.add_ssm_inner_size(shape.ssm_inner)
    writer.add_full_attention_interval(shape.interval)
    writer.add_nextn_predict_layers(1)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(names)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    ids = {name: number for number, name in enumerate(names) if name in _SPECIAL}
    writer.add_eos_token_id(ids["<|im_end|>"])
    writer.add_pad_token_id(ids["<|endoftext|>"])
    writer.add_bos_token_id(ids["<|endoftext|>"])
    writer.add_add_bos_token(value=False)
    writer.add_chat_template(_TEMPLATE)


def _vocabulary(size: int) -> tuple[list[str], list[int], list[str]]:
    """Bytes, letter pairs and specials within the active tokens; the rest is unused."""
    names = _bytes()
    space = names[32]
    merges: list[str] = []
    pairs = [(space, a) for a in _LETTERS] + [(a, b) for a in _LETTERS for b in _LETTERS]
    for a, b in pairs[: _ACTIVE - len(names) - len(_SPECIAL)]:
        merges.append(f"{a} {b}")
        names.append(a + b)
    kinds = [int(gguf.TokenType.NORMAL)] * len(names)
    unused = range(len(names), _ACTIVE - len(_SPECIAL))
    names += [f"[UNUSED{n}]" for n in unused]
    kinds += [int(gguf.TokenType.UNUSED)] * len(unused)
    names += _SPECIAL
    kinds += [int(gguf.TokenType.CONTROL)] * len(_SPECIAL)
    names += [f"[UNUSED{n}]" for n in range(_ACTIVE, size)]
    kinds += [int(gguf.TokenType.UNUSED)] * (size - _ACTIVE)
    return names, kinds, merges


def _bytes() -> list[str]:
    """One printable character per byte, as byte-level BPE writes them."""
    shown = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(256, 512))
    return [chr(b if b in shown else next(hidden)) for b in range(256)]


def _printable(names: list[str]) -> list[int]:
    space = names[32]
    letters = {*_LETTERS, space}
    return [n for n, name in enumerate(names[:_ACTIVE]) if name != space and set(name) <= letters]


def _quant(rows: Matrix) -> NDArray[np.uint8]:
    return gguf.quants.quantize(rows, Quant.Q4_0)


def _ones(size: int) -> NDArray[np.uint8]:
    return np.ones(size, dtype=np.float32).view(np.uint8)


def main() -> None:
    """Write a model from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.evidence.shaped_gguf", description=__doc__
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("--small", action="store_true", help="for a processor")
    parser.add_argument("--hard", type=float, default=0.24, help="about 1 - alpha_i")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    write(args.path, SMALL if args.small else BIG, hard=args.hard, seed=args.seed)
    sys.stdout.write(f"{args.path}: {args.path.stat().st_size / 2**20:.1f} MiB\n")


if __name__ == "__main__":
    main()
