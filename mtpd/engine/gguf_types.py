"""What a GGUF header holds: value types and the sizes of tensor types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.errors import MtpdError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BLOCKS", "GgufError", "GgufHeader", "GgufTensor", "Metadata"]

Metadata = int | float | bool | str | tuple[int | float | bool, ...]
"""A metadata value; long arrays and arrays of strings are not kept."""

BLOCKS: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
"""ggml type: name, elements per block, bytes per block."""


class GgufError(MtpdError):
    """A model file cannot be read as GGUF; the message names the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    """One tensor of the file.

    Attributes:
        shape: Dimensions in ggml order, the fastest first.
        type_name: e.g. "Q4_0"; "type 99" for one this version does not know.
        offset: Bytes from the start of the data.
        n_bytes: Its size; up to the next tensor for an unknown type.
    """

    name: str
    shape: tuple[int, ...]
    type_name: str
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """What a model file says about itself.

    Attributes:
        path: The file.
        architecture: e.g. "qwen35".
        block_count: Blocks, NextN blocks included; None where the file does not say, as
            for the following ones.
        nextn_layers: NextN (MTP) blocks at the end; 0 where the file names none.
        vocab_size: Tokens of the vocabulary.
        metadata: Scalars, short strings and short numeric arrays, by full key.
        alignment: Of the tensor data.
        data_offset: Where the tensor data begins.
        file_size: Bytes on disk.
        missing_bytes: How much shorter the file is than its tensors need; 0 if complete.
        digest: SHA-256 over the header, hexadecimal.
    """

    path: str
    version: int
    architecture: str
    block_count: int | None
    nextn_layers: int
    context_length: int | None
    embedding_length: int | None
    vocab_size: int | None
    metadata: Mapping[str, Metadata]
    tensors: tuple[GgufTensor, ...]
    alignment: int
    data_offset: int
    file_size: int
    missing_bytes: int
    digest: str

    @property
    def data_complete(self) -> bool:
        """Whether the file is as long as its tensors say."""
        return self.missing_bytes == 0

    def number(self, key: str) -> int | None:
        """An integer of this architecture, e.g. ``number("ssm.inner_size")``, or None."""
        value = self.metadata.get(f"{self.architecture}.{key}")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def require_complete(self) -> None:
        """Raise GgufError if tensor data is missing at the end of the file."""
        if self.data_complete:
            return
        msg = f"{self.path} is incomplete: {self.missing_bytes} bytes are missing at its end"
        raise GgufError(msg, hint="Fetch it again; the download was cut short.")
