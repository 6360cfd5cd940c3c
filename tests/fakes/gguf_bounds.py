"""Whether a GGUF file is there, is one, and is as long as its header says.

Lenient on purpose: a file that only starts like a GGUF is a good model to the fake
engine, so that tests can write one in a line.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["complaint"]

SIZES = (1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8)
STRING, ARRAY = 8, 9
BLOCKS = {0: (1, 4), 1: (1, 2), 8: (32, 34), 2: (32, 18)}
"""Elements and bytes of one block of a tensor type: f32, f16, q8_0, q4_0."""


def complaint(path: Path) -> str | None:
    """Why llama.cpp would not load the file, in its words; None if it would."""
    try:
        with path.open("rb") as file:
            empty = not file.seek(0, os.SEEK_END)
            data = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        return f"gguf_init_from_file: failed to open GGUF file '{path}' ({error.strerror})"
    if data[:4] != b"GGUF":
        shown = data[:4].decode("latin-1")
        return f"gguf_init_from_reader: invalid magic characters: '{shown}', expected 'GGUF'"
    try:
        return _Reader(data).beyond_the_end()
    except (struct.error, IndexError, KeyError):
        return None


class _Reader:
    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.data = data
        self.at = 8
        self.alignment = 32

    def beyond_the_end(self) -> str | None:
        """Read the header; name the first tensor whose data the file does not hold."""
        tensors, keys = self._take("<Q"), self._take("<Q")
        for _ in range(keys):
            self._string()
            self._value(self._take("<I"))
        table = [self._tensor() for _ in range(tensors)]
        start = math.ceil(self.at / self.alignment) * self.alignment
        for name, offset, size in table:
            if start + offset + size > len(self.data):
                return (
                    f"llama_model_load: error loading model: tensor '{name}' data is not within "
                    "the file bounds, model is corrupted or incomplete"
                )
        return None

    def _take(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def _string(self) -> str:
        length = self._take("<Q")
        text = self.data[self.at : self.at + length].decode()
        self.at += length
        return text

    def _value(self, kind: int) -> None:
        if kind == STRING:
            self._string()
        elif kind == ARRAY:
            inner, count = self._take("<I"), self._take("<Q")
            for _ in range(count):
                self._value(inner)
        else:
            self.at += SIZES[kind]

    def _tensor(self) -> tuple[str, int, int]:
        name = self._string()
        elements = math.prod(self._take("<Q") for _ in range(self._take("<I")))
        per_block, size = BLOCKS[self._take("<I")]
        return name, self._take("<Q"), elements // per_block * size
