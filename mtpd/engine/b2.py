"""The B2 recipe of study 000: the same model with its output tensor in Q4_0. Pure.

Covers what the recipe would change in a file, what llama-quantize must be told so that nothing
else changes, and whether nothing else did. The output matrix is read once per step by the model
and once per drafted token by an MTP head, and is mostly stored in Q6_K: in Q4_0 it is a third
smaller, which on a full card decides what stays resident.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mtpd.engine.gguf_types import BLOCKS
from mtpd.types import Absent

if TYPE_CHECKING:
    from mtpd.engine.gguf_types import GgufHeader, GgufTensor

__all__ = ["AFTER", "B2", "arguments", "b2", "strayed"]

AFTER: Final = "Q4_0"
"""What the output tensor becomes, and the type that llama-quantize gives a matrix unasked."""

_OUTPUT: Final = "output.weight"
_KNOWN: Final = frozenset(name for name, _, _ in BLOCKS.values())
_ROW, _BLOCK_BYTES = next((per, size) for name, per, size in BLOCKS.values() if name == AFTER)
_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class B2:
    """What the recipe changes.

    Attributes:
        tensor: The output tensor as it is.
        gained_bytes: What it becomes smaller by.
    """

    tensor: GgufTensor
    gained_bytes: int


def b2(header: GgufHeader) -> B2 | Absent:
    """What the recipe would do to a file, or why it does nothing."""
    tensor = next((one for one in header.tensors if one.name == _OUTPUT), None)
    if (damage := _damage(header)) is not None:
        return Absent(damage)
    if tensor is None:
        return Absent("it has no output tensor of its own: the token embedding serves as one")
    if tensor.shape[0] % _ROW:
        return Absent(f"rows of {tensor.shape[0]} values cannot be stored in {AFTER}")
    gained = tensor.n_bytes - math.prod(tensor.shape) // _ROW * _BLOCK_BYTES
    if gained <= 0:
        return Absent(f"its output tensor is in {tensor.type_name}, which is no larger")
    return B2(tensor=tensor, gained_bytes=gained)


def _damage(header: GgufHeader) -> str | None:
    """Why the file cannot be written anew, or None."""
    if not header.data_complete:
        return f"the file is cut short by {header.missing_bytes} bytes"
    if header.metadata.get("split.count", 1) != 1:
        return "the model is split over several files: llama-gguf-split --merge joins them"
    strange = [one.name for one in header.tensors if one.type_name not in _KNOWN]
    return f"{strange[0]} has a type that this version does not know" if strange else None


def arguments(header: GgufHeader, *, source: str, target: str) -> tuple[str, ...]:
    """What llama-quantize is told; every other tensor is named that it would change unasked."""
    words = ["--allow-requantize", "--output-tensor-type", AFTER.lower()]
    for tensor in header.tensors:
        kept = tensor.name == _OUTPUT or tensor.type_name == AFTER
        if not kept and len(tensor.shape) > 1:
            words += ["--tensor-type", f"^{re.escape(tensor.name)}$={tensor.type_name.lower()}"]
    return (*words, source, target, AFTER)


def strayed(before: GgufHeader, after: GgufHeader) -> str | None:
    """What a made file has otherwise than the recipe says, or None."""
    wanted = {one.name: (one.shape, one.type_name) for one in before.tensors}
    wanted[_OUTPUT] = (wanted[_OUTPUT][0], AFTER)
    made = {one.name: (one.shape, one.type_name) for one in after.tensors}
    wrong = sorted(name for name in wanted | made if wanted.get(name) != made.get(name))
    if not after.data_complete:
        return f"it is cut short by {after.missing_bytes} bytes"
    if not wrong:
        return None
    more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    return f"not as wanted: {', '.join(wrong[:_NAMED])}{more}"
