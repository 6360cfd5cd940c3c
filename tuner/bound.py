"""An upper bound of the memory of a model that the forecast does not cover. Pure.

For dense and mixed-expert transformers whose header leaves out what ``tuner.geometry`` needs,
and for encoders, which keep no cache of keys and values. Says whether an engine may be started
beside others, where too much costs room and too little costs a start. It is no prediction:
maybe half of it is used, so it must not decide about a depth, and is a type of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuner.footprint import VULKAN_OVERHEAD_BYTES
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuner.geometry import LoadPlan

__all__ = ["Bound", "Outline", "bound", "outline"]

_MIB = 2**20

CAUSAL: Final = frozenset(
    {
        *("llama", "mistral3", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma", "gemma2"),
        *("gemma3", "phi2", "phi3", "starcoder2", "stablelm", "internlm2", "command-r", "cohere2"),
        *("olmo", "olmo2", "granite", "granitemoe", "exaone", "exaone4", "glm4", "chatglm"),
        *("baichuan", "falcon", "gptneox", "gpt-oss", "smollm3", "minicpm", "nemotron", "seed_oss"),
        *("ernie4_5", "xverse", "orion"),
    }
)
"""Architectures whose every layer keeps keys and values of its heads, and nothing else."""

ENCODERS: Final = frozenset(
    {
        *("bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert"),
        *("neo-bert", "eurobert", "gemma-embedding"),
    }
)
"""Architectures that read a text at once and keep nothing of it."""

_MOST_BLOCKS = 4096
"""Layers of a file that is believed."""
_WIDE, _NARROW, _HEADS = 3, 8, 4
"""Rows of the feed-forward, embedding and attention width that are alive at once, at most."""
_FLOAT, _MASK_CELL, _SCORES = 4, 4 + 2, 2
"""Bytes of an activation; of a mask cell, in 32 and in 16 bits; copies of attention scores."""
_DRIVER_BYTES = VULKAN_OVERHEAD_BYTES + 128 * _MIB
"""What the driver takes beside all buffers, at the upper end of what is assumed of a card."""

_Fact = int | float | bool | str | tuple[int | float | bool, ...]
"""What a header says under one key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What a bound needs of a model file.

    Attributes:
        weights_bytes: All tensors.
        causal: Whether it keeps keys and values.
        keys: Elements of all layers' keys, per token of context.
        values: The same of their values.
        heads: Attention heads of the layer that has most.
        attention: Width of the queries of that layer.
        embedding: ``embedding_length``.
        feed_forward: Width of the feed-forward of one token, experts together.
        vocab: Rows of the output; 0 without one.
    """

    weights_bytes: int
    causal: bool
    keys: int
    values: int
    heads: int
    attention: int
    embedding: int
    feed_forward: int
    vocab: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Memory that is never exceeded, by part, bytes."""

    weights_bytes: int
    kv_bytes: int
    compute_bytes: int
    driver_bytes: int = _DRIVER_BYTES

    @property
    def total(self) -> int:
        """Bytes in all."""
        return self.weights_bytes + self.kv_bytes + self.compute_bytes + self.driver_bytes


def outline(
    architecture: str, facts: Mapping[str, _Fact], *, weights_bytes: int, vocab: int | None
) -> Outline | Unknown:
    """The outline of a model, by its header.

    Numbers that a header leaves out are those that the engine takes for them: as many heads
    for keys and values as for queries, each as wide as its share of the embedding.

    Args:
        architecture: ``general.architecture``.
        facts: Metadata by full key.
        weights_bytes: All tensors.
        vocab: Tokens of the vocabulary.

    Returns:
        Unknown for other architectures, and where a number is missing.
    """
    if architecture not in CAUSAL | ENCODERS:
        return Unknown(f"the memory of a model of the architecture {architecture} is not bounded")
    read = _Numbers(architecture, facts)
    blocks, embedding = read.one("block_count"), read.one("embedding_length")
    heads = read.row("attention.head_count", blocks)
    wide = read.row("feed_forward_length", blocks)
    if not blocks or not embedding or not heads or not wide or min(heads) < 1:
        return Unknown(f"the header of this {architecture} does not say how large its layers are")
    causal = architecture in CAUSAL
    if causal and vocab is None:
        return Unknown(
            f"the header of this {architecture} does not say how large its vocabulary is"
        )
    share = -(-embedding // min(heads))
    key, value = read.one("attention.key_length"), read.one("attention.value_length")
    key, value = key or share, value or share
    kv_heads = read.row("attention.head_count_kv", blocks) or heads
    experts = read.one("expert_feed_forward_length") or max(wide)
    return Outline(
        weights_bytes=weights_bytes,
        causal=causal,
        keys=sum(kv_heads) * key if causal else 0,
        values=sum(kv_heads) * value if causal else 0,
        heads=max(heads),
        attention=max(heads) * max(key, value),
        embedding=embedding,
        feed_forward=max(*wide, (read.one("expert_used_count") or 0) * experts),
        vocab=vocab if causal and vocab is not None else 0,
    )


def bound(model: Outline, plan: LoadPlan) -> Bound:
    """What a load takes at most, wherever its layers lie, with flash attention where it caches.

    The compute buffer is bounded by all rows of one physical batch that can be alive at once:
    activations, the attention mask, the scores of an encoder, and the output of every token.
    """
    batch = plan.ubatch
    rows = _WIDE * model.feed_forward + _NARROW * model.embedding + _HEADS * model.attention
    seen = plan.cells if model.causal else batch
    scores = 0 if model.causal else _SCORES * model.heads * batch * seen
    return Bound(
        weights_bytes=model.weights_bytes,
        kv_bytes=plan.cells * (plan.kv_type_k.size(model.keys) + plan.kv_type_v.size(model.values)),
        compute_bytes=_FLOAT * (batch * (rows + model.vocab) + scores) + _MASK_CELL * batch * seen,
    )


class _Numbers:
    """Reads the integers of one architecture."""

    def __init__(self, architecture: str, facts: Mapping[str, _Fact]) -> None:
        self._architecture, self._facts = architecture, facts

    def one(self, key: str) -> int | None:
        """A single number above 0, or None."""
        value = self._facts.get(f"{self._architecture}.{key}")
        return value if isinstance(value, int) and value > 0 else None

    def row(self, key: str, blocks: int | None) -> tuple[int, ...]:
        """A number per layer, from one for all or a list; empty where the header has none."""
        value = self._facts.get(f"{self._architecture}.{key}")
        if blocks is None or blocks > _MOST_BLOCKS:
            return ()
        if isinstance(value, int):
            return (value,) * blocks if value >= 0 else ()
        listed = value[:blocks] if isinstance(value, tuple) else ()
        whole = len(listed) == blocks and min(listed) >= 0
        return tuple(int(one) for one in listed) if whole else ()
