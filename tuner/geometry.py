"""What a model's memory depends on: its shape and the load it is started for.

Covers the facts that a GGUF header gives, as plain numbers, and the start-up options that
change memory. Does not read files and does not predict (``tuner.footprint``).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "QWEN35_27B",
    "QWEN35_27B_B2",
    "Geometry",
    "KvType",
    "LoadPlan",
    "RecurrentGeometry",
    "from_gguf",
]

_MIB = 2**20
_BLOCK = 32
_CELL_PAD = 256

_ROLLBACK = frozenset({"qwen35", "qwen35moe", "qwen4exp"})
"""Architectures that keep one recurrent row per draft token (llm_arch_supports_rs_rollback)."""
_CHECKPOINT = frozenset({"qwen3next"})
"""Hybrids that go back by a checkpoint instead, and keep one row per slot."""
_FULL_ATTENTION_INTERVAL = 4
"""Every fourth layer is attention where the header does not say otherwise."""


class KvType(enum.StrEnum):
    """Element types of the key and value cache, as the engine names them."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"
    Q5_1 = "q5_1"
    Q5_0 = "q5_0"
    Q4_1 = "q4_1"
    Q4_0 = "q4_0"
    IQ4_NL = "iq4_nl"

    def size(self, elements: int) -> int:
        """Bytes of ``elements``, which the engine keeps in blocks of 32."""
        return elements * _BLOCK_BYTES[self] // _BLOCK


_BLOCK_BYTES: Final = {
    KvType.F32: 128,
    KvType.F16: 64,
    KvType.BF16: 64,
    KvType.Q8_0: 34,
    KvType.Q5_1: 24,
    KvType.Q5_0: 22,
    KvType.Q4_1: 20,
    KvType.Q4_0: 18,
    KvType.IQ4_NL: 18,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentGeometry:
    """Shape of a model's recurrent (Gated DeltaNet) state, from its GGUF header.

    Attributes:
        layers: Recurrent layers.
        conv_kernel: ``ssm.conv_kernel``.
        inner: ``ssm.inner_size``.
        groups: ``ssm.group_count``.
        state: ``ssm.state_size``.
        element_bytes: Bytes per element; the engine keeps the state in 32 bits.
    """

    layers: int
    conv_kernel: int
    inner: int
    groups: int
    state: int
    element_bytes: int = 4

    @property
    def row_bytes(self) -> int:
        """Bytes of one row: one slot, one rollback position."""
        conv = (self.conv_kernel - 1) * (self.inner + 2 * self.groups * self.state)
        return self.layers * (conv + self.state * self.inner) * self.element_bytes

    @property
    def row_mib(self) -> float:
        """MiB of one row."""
        return self.row_bytes / _MIB


QWEN35_27B: Final = RecurrentGeometry(layers=48, conv_kernel=4, inner=6144, groups=16, state=128)
"""The 27B hybrid of both studies: 149.625 MiB per row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Shape and tensor sizes of one model file.

    Attributes:
        attention_layers: Layers of the trunk that keep keys and values.
        recurrent: The other layers of the trunk; None without any.
        nextn_layers: MTP blocks behind the trunk; each keeps keys and values.
        kv_heads: ``attention.head_count_kv``.
        key_length: ``attention.key_length``, elements per head.
        value_length: ``attention.value_length``.
        vocab: Rows of the token embedding.
        embedding: ``embedding_length``.
        feed_forward: ``feed_forward_length``.
        token_embd_bytes: The token embedding; it stays on the host.
        output_bytes: The output matrix; 0 where it is tied to the token embedding.
        nextn_bytes: All of the MTP blocks; loaded only for drafting.
        trunk_bytes: All other tensors.
        rollback: Whether the recurrent state keeps a row per draft token.
    """

    attention_layers: int
    recurrent: RecurrentGeometry | None
    nextn_layers: int
    kv_heads: int
    key_length: int
    value_length: int
    vocab: int
    embedding: int
    feed_forward: int
    token_embd_bytes: int
    output_bytes: int
    nextn_bytes: int
    trunk_bytes: int
    rollback: bool = True

    @property
    def tied(self) -> bool:
        """Whether output and token embedding are one tensor; the device then holds a copy."""
        return self.output_bytes == 0

    @property
    def layers(self) -> int:
        """Layers of the trunk."""
        return self.attention_layers + (self.recurrent.layers if self.recurrent else 0)

    def kv_row_bytes(self, keys: KvType, values: KvType) -> int:
        """Bytes per token of context and attention layer."""
        return keys.size(self.kv_heads * self.key_length) + values.size(
            self.kv_heads * self.value_length
        )

    def with_output(self, kind: KvType) -> Geometry:
        """The same model with its output matrix stored as ``kind`` (the B2 recipe: q4_0)."""
        return replace(
            self, output_bytes=0 if self.tied else kind.size(self.vocab * self.embedding)
        )


QWEN35_27B_B2: Final = Geometry(
    attention_layers=16,
    recurrent=QWEN35_27B,
    nextn_layers=1,
    kv_heads=4,
    key_length=256,
    value_length=256,
    vocab=248320,
    embedding=5120,
    feed_forward=17408,
    token_embd_bytes=KvType.Q4_0.size(248320 * 5120),
    output_bytes=KvType.Q4_0.size(248320 * 5120),
    nextn_bytes=round(252.91 * _MIB),
    trunk_bytes=round(13754.78 * _MIB) - KvType.Q4_0.size(248320 * 5120),
)
"""The 27B hybrid in Q4_0 with its output matrix in Q4_0, too.

Sizes as printed for the file measured on a GPU: 13754.78 MiB without and 14007.69 with the MTP
block, 682.03 for the token embedding.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """Start-up options that decide memory.

    Attributes:
        context: Tokens of context over all slots (``-c``).
        slots: Parallel requests (``-np``).
        depth: Draft depth; 0 is without speculation.
        kv_type_k: Type of the keys (``-ctk``).
        kv_type_v: Type of the values (``-ctv``).
        draft_kv_type_k: Keys of the MTP context (``-ctkd``); the engine's default is f16
            whatever ``kv_type_k`` says.
        draft_kv_type_v: Its values (``-ctvd``).
        ubatch: Physical batch (``-ub``).
        unified: Whether all slots share one KV cache (``-kvu``).
        head: Whether the model's own MTP head is what drafts; only then do recurrent layers keep
            a row per draft token, as the printed sums of n-grams and of a draft model show.
        draft: The draft model, which is loaded beside at any depth above 0, or None.
    """

    context: int
    slots: int = 1
    depth: int = 0
    kv_type_k: KvType = KvType.F16
    kv_type_v: KvType = KvType.F16
    draft_kv_type_k: KvType = KvType.F16
    draft_kv_type_v: KvType = KvType.F16
    ubatch: int = 512
    unified: bool = False
    head: bool = True
    draft: Geometry | None = None

    def __post_init__(self) -> None:
        """Refuse what no engine can be started with."""
        if min(self.context, self.slots, self.ubatch) < 1 or self.depth < 0:
            msg = (
                "context, slots and ubatch must be >= 1 and depth >= 0, "
                f"got {self.context}, {self.slots}, {self.ubatch} and {self.depth}"
            )
            raise ValueError(msg)

    @property
    def own_head(self) -> bool:
        """Whether the model's own head drafts."""
        return self.depth > 0 and self.head and self.draft is None

    @property
    def slot_cells(self) -> int:
        """Cells of context that one slot can see; a slot's share is padded to 256."""
        share = self.context if self.unified else -(-self.context // self.slots)
        return -(-share // _CELL_PAD) * _CELL_PAD

    @property
    def cells(self) -> int:
        """Cells of context in all."""
        return self.slot_cells if self.unified else self.slot_cells * self.slots

    def __str__(self) -> str:
        """Short text for sentences."""
        slots = f"{self.slots} slot{'' if self.slots == 1 else 's'}"
        return f"depth {self.depth}, {slots}, context {self.context}, KV {self.kv_type_k}"


def from_gguf(
    architecture: str,
    facts: Mapping[str, int | float | bool | str | tuple[int | float | bool, ...]],
    tensors: Iterable[tuple[str, int]],
    *,
    vocab: int,
) -> Geometry | Unknown:
    """Geometry from a header's metadata and tensor sizes.

    Args:
        architecture: ``general.architecture``.
        facts: Metadata by full key, e.g. ``qwen35.block_count``.
        tensors: Name and bytes of every tensor.
        vocab: Rows of the token embedding.

    Returns:
        Unknown where a needed fact is missing, or where the architecture treats its
        recurrent state in a way that is not known.
    """

    def number(key: str) -> int | None:
        value = facts.get(f"{architecture}.{key}")
        return value if isinstance(value, int) else None

    needed = {key: number(key) for key in _NEEDED}
    if missing := [key for key, value in needed.items() if value is None]:
        return Unknown(f"the header has no single number for {architecture}.{missing[0]}")
    n = {key: value for key, value in needed.items() if value is not None}
    nextn = number("nextn_predict_layers") or 0
    trunk = n["block_count"] - nextn
    recurrent = _recurrent(architecture, facts, trunk)
    if isinstance(recurrent, Unknown):
        return recurrent
    sizes = {"token_embd": 0, "output": 0, "nextn": 0, "trunk": 0}
    for name, size in tensors:
        sizes[_role(name, trunk)] += size
    return Geometry(
        attention_layers=trunk - (recurrent.layers if recurrent else 0),
        recurrent=recurrent,
        nextn_layers=nextn,
        kv_heads=n["attention.head_count_kv"],
        key_length=n["attention.key_length"],
        value_length=n["attention.value_length"],
        vocab=vocab,
        embedding=n["embedding_length"],
        feed_forward=n["feed_forward_length"],
        token_embd_bytes=sizes["token_embd"],
        output_bytes=sizes["output"],
        nextn_bytes=sizes["nextn"],
        trunk_bytes=sizes["trunk"],
        rollback=architecture not in _CHECKPOINT,
    )


_NEEDED: Final = (
    "block_count",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
)


def _recurrent(
    architecture: str,
    facts: Mapping[str, int | float | bool | str | tuple[int | float | bool, ...]],
    trunk: int,
) -> RecurrentGeometry | Unknown | None:
    shape: dict[str, int] = {}
    for key in ("conv_kernel", "inner_size", "group_count", "state_size"):
        value = facts.get(f"{architecture}.ssm.{key}")
        if isinstance(value, int):
            shape[key] = value
    if not shape:
        return None
    if len(shape) < 4:  # noqa: PLR2004 - the four keys above
        return Unknown(f"the header of this {architecture} gives only {', '.join(shape)} of ssm")
    if architecture not in _ROLLBACK | _CHECKPOINT:
        return Unknown(f"how {architecture} rolls its recurrent state back is not known")
    listed = facts.get(f"{architecture}.attention.recurrent_layers")
    if isinstance(listed, tuple):
        layers = sum(map(bool, listed[:trunk]))
    else:
        every = facts.get(f"{architecture}.full_attention_interval")
        interval = every if isinstance(every, int) and every > 0 else _FULL_ATTENTION_INTERVAL
        layers = trunk - trunk // interval
    return RecurrentGeometry(
        layers=layers,
        conv_kernel=shape["conv_kernel"],
        inner=shape["inner_size"],
        groups=shape["group_count"],
        state=shape["state_size"],
    )


def _role(name: str, trunk: int) -> str:
    if name == "token_embd.weight":
        return "token_embd"
    if name == "output.weight":
        return "output"
    block = name.split(".")[1] if name.startswith("blk.") else ""
    return "nextn" if block.isdigit() and int(block) >= trunk else "trunk"
