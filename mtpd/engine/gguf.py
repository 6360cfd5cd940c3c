"""Read the header of a GGUF file: metadata and the list of tensors, never the weights.

Bounded: every count and length is checked against the file before it is believed, so
that a damaged file ends in one clear error and not in a full memory. Little-endian
versions 2 and 3 are read. Blocking: call it in a thread from the event loop.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import stat
import struct
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from mtpd.engine.gguf_types import BLOCKS, GgufError, GgufHeader, GgufTensor, Metadata

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["GgufError", "GgufHeader", "GgufTensor", "read_header"]

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_HEADER = 128 * 1024 * 1024
_CHUNK = 1024 * 1024
_MAX_ENTRIES = 1 << 20
_MAX_DIMENSIONS = 8
_MAX_NAME = 4096
_KEPT_STRING = 4096
_KEPT_ARRAY = 4096
_DEFAULT_ALIGNMENT = 32

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: Mapping[int, struct.Struct] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    _BOOL: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_U32, _U64 = _SCALARS[4], _SCALARS[10]
_TOKENS = "tokenizer.ggml.tokens"


def read_header(path: Path) -> GgufHeader:
    """Read a model's header; raises GgufError for every way a file can be wrong."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            # Opening a pipe waits for its writer, and with it the caller.
            msg = f"{path} cannot be read: it is not a regular file"
            raise GgufError(msg, hint="Name the model file itself.")
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            return _parse(_Reader(file, size, str(path)))
    except FileNotFoundError as error:
        msg = f"{path} was not found"
        raise GgufError(msg, hint="Check the path in the profile.") from error
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror or error}"
        raise GgufError(msg, hint="Check its rights, and that it is a file.") from error


class _Reader:
    """A cursor over the beginning of a file that reads on as it is needed."""

    def __init__(self, file: BinaryIO, size: int, name: str) -> None:
        self._file = file
        self._data = bytearray()
        self.position = 0
        self.size = size
        self.name = name

    def refuse(self, what: str) -> NoReturn:
        """End the reading with a sentence that names the file."""
        msg = f"{self.name} is no valid GGUF file: {what}"
        raise GgufError(msg, hint="Fetch it again.")

    def need(self, count: int) -> None:
        """Make sure that so many bytes lie behind the cursor."""
        end = self.position + count
        if end > self.size:
            missing = end - self.size
            msg = f"{self.name} ends inside its header: at least {missing} bytes are missing"
            raise GgufError(msg, hint="Fetch it again; the download was cut short.")
        if end > _MAX_HEADER:
            self.refuse(f"its header is longer than {_MAX_HEADER} bytes")
        while len(self._data) < end:
            chunk = self._file.read(max(_CHUNK, end - len(self._data)))
            if not chunk:
                self.refuse("it shrank while it was read")
            self._data += chunk

    def take(self, kind: struct.Struct) -> int | float | bool:
        self.need(kind.size)
        value: int | float | bool = kind.unpack_from(self._data, self.position)[0]
        self.position += kind.size
        return value

    def u32(self) -> int:
        return int(self.take(_U32))

    def u64(self) -> int:
        return int(self.take(_U64))

    def text(self, limit: int) -> str:
        """A string; longer ones than the limit are cut."""
        length = self.u64()
        self.need(length)
        kept = bytes(self._data[self.position : self.position + min(length, limit)])
        self.position += length
        return kept.decode("utf-8", errors="replace")

    def skip_strings(self, count: int) -> None:
        """Step over an array of strings: the vocabulary has a quarter of a million."""
        unpack = _U64.unpack_from
        for _ in range(count):
            self.need(_U64.size)
            length: int = unpack(self._data, self.position)[0]
            self.need(_U64.size + length)
            self.position += _U64.size + length

    def digest(self) -> str:
        return hashlib.sha256(memoryview(self._data)[: self.position]).hexdigest()


def _parse(reader: _Reader) -> GgufHeader:
    reader.need(len(_MAGIC))
    magic = reader.u32().to_bytes(4, "little")
    if magic != _MAGIC:
        msg = f"{reader.name} is not a GGUF file: it begins with {magic!r}"
        raise GgufError(msg, hint="Check the path, or fetch it again.")
    version = reader.u32()
    if version not in _VERSIONS:
        reader.refuse(f"version {version} is not one of {_VERSIONS}")
    tensor_count, entry_count = reader.u64(), reader.u64()
    if max(tensor_count, entry_count) > _MAX_ENTRIES:
        reader.refuse(f"{tensor_count} tensors and {entry_count} entries are too many")
    metadata: dict[str, Metadata] = {}
    lengths: dict[str, int] = {}
    for _ in range(entry_count):
        key = reader.text(_MAX_NAME)
        _value(reader, key, metadata, lengths)
    tensors = [_tensor(reader) for _ in range(tensor_count)]
    return _header(reader, version, metadata, lengths, tensors)


def _value(
    reader: _Reader, key: str, metadata: dict[str, Metadata], lengths: dict[str, int]
) -> None:
    kind = reader.u32()
    if kind == _STRING:
        metadata[key] = reader.text(_KEPT_STRING)
    elif kind == _ARRAY:
        lengths[key] = _array(reader, key, metadata)
    elif kind in _SCALARS:
        metadata[key] = reader.take(_SCALARS[kind])
    else:
        reader.refuse(f"{key!r} has the unknown type {kind}")


def _array(reader: _Reader, key: str, metadata: dict[str, Metadata]) -> int:
    kind, count = reader.u32(), reader.u64()
    if kind == _STRING:
        reader.need(min(count, reader.size) * _U64.size)
        reader.skip_strings(count)
    elif kind in _SCALARS:
        scalar = _SCALARS[kind]
        reader.need(min(count, reader.size + 1) * scalar.size)
        if count <= _KEPT_ARRAY:
            metadata[key] = tuple(reader.take(scalar) for _ in range(count))
        else:
            reader.position += count * scalar.size
    else:
        reader.refuse(f"{key!r} is an array of the unknown type {kind}")
    return count


_Raw = tuple[str, tuple[int, ...], int, int]
"""Name, shape, ggml type, offset."""


def _tensor(reader: _Reader) -> _Raw:
    name = reader.text(_MAX_NAME)
    dimensions = reader.u32()
    if dimensions > _MAX_DIMENSIONS:
        reader.refuse(f"tensor {name!r} has {dimensions} dimensions")
    shape = tuple(reader.u64() for _ in range(dimensions))
    return name, shape, reader.u32(), reader.u64()


def _header(
    reader: _Reader,
    version: int,
    metadata: dict[str, Metadata],
    lengths: dict[str, int],
    raw: list[_Raw],
) -> GgufHeader:
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        reader.refuse("it names no architecture")
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        reader.refuse(f"its alignment {alignment} is no power of two")

    def number(key: str) -> int | None:
        value = metadata.get(f"{architecture}.{key}")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    data_offset = -(-reader.position // alignment) * alignment
    tensors = _sizes(raw, max(0, reader.size - data_offset))
    end = max((t.offset + t.n_bytes for t in tensors), default=0)
    return GgufHeader(
        path=reader.name,
        version=version,
        architecture=architecture,
        block_count=number("block_count"),
        nextn_layers=number("nextn_predict_layers") or 0,
        context_length=number("context_length"),
        embedding_length=number("embedding_length"),
        vocab_size=lengths.get(_TOKENS) or number("vocab_size"),
        metadata=metadata,
        tensors=tensors,
        alignment=alignment,
        data_offset=data_offset,
        file_size=reader.size,
        missing_bytes=max(0, data_offset + end - reader.size) if tensors else 0,
        digest=reader.digest(),
    )


def _sizes(raw: list[_Raw], data_size: int) -> tuple[GgufTensor, ...]:
    """Tensors with their sizes, in the order of the file's list."""
    offsets = sorted({offset for *_, offset in raw})
    following = dict(itertools.pairwise([*offsets, data_size]))
    tensors = []
    for name, shape, kind, offset in raw:
        if kind in BLOCKS:
            type_name, per_block, block_bytes = BLOCKS[kind]
            n_bytes = -(-math.prod(shape) // per_block) * block_bytes
        else:
            type_name, n_bytes = f"type {kind}", max(0, following[offset] - offset)
        tensors.append(
            GgufTensor(name=name, shape=shape, type_name=type_name, offset=offset, n_bytes=n_bytes)
        )
    return tuple(tensors)
