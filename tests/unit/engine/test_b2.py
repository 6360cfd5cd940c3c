"""What the B2 recipe changes, what it tells llama-quantize, and whether only that changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mtpd.engine.b2 import B2, arguments, b2, strayed
from mtpd.engine.gguf import read_header
from mtpd.types import Absent
from tests.fakes.gguf_files import MIXED, quantize, write_gguf

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.engine.gguf_types import GgufHeader

Q6_K, Q4_0 = 256 * 64 // 256 * 210, 256 * 64 // 32 * 18


def header(folder: Path, **changes: tuple[tuple[int, ...], str] | None) -> GgufHeader:
    named = {name.replace("output", "output.weight"): value for name, value in changes.items()}
    tensors = {name: kept for name, kept in {**MIXED, **named}.items() if kept is not None}
    return read_header(write_gguf(folder / "m.gguf", tensors))


def test_the_output_tensor_becomes_smaller_and_nothing_else(tmp_path: Path) -> None:
    before = header(tmp_path)
    found = b2(before)
    assert isinstance(found, B2)
    assert (found.tensor.name, found.gained_bytes) == ("output.weight", Q6_K - Q4_0)
    words = arguments(before, source=str(tmp_path / "m.gguf"), target=str(tmp_path / "n.gguf"))
    assert words == (
        *("--allow-requantize", "--output-tensor-type", "q4_0"),
        *("--tensor-type", r"^blk\.0\.ffn_down\.weight$=q4_1"),
        *("--tensor-type", r"^blk\.1\.nextn\.eh_proj\.weight$=q8_0"),
        *(str(tmp_path / "m.gguf"), str(tmp_path / "n.gguf"), "Q4_0"),
    )
    quantize(words)
    after = read_header(tmp_path / "n.gguf")
    assert strayed(before, after) is None
    assert before.file_size - after.file_size == found.gained_bytes


def test_a_tensor_that_changed_against_the_orders_is_named(tmp_path: Path) -> None:
    before = header(tmp_path)
    words = arguments(before, source=str(tmp_path / "m.gguf"), target=str(tmp_path / "n.gguf"))
    quantize(words, spoil="blk.0.attn_q.weight")
    wrong = strayed(before, read_header(tmp_path / "n.gguf"))
    assert wrong == "not as wanted: blk.0.attn_q.weight"
    assert strayed(before, before) == "not as wanted: output.weight"
    bare = replace(before, tensors=())
    assert strayed(before, bare) == (
        "not as wanted: blk.0.attn_q.weight, blk.0.ffn_down.weight, blk.1.nextn.eh_proj.weight "
        "and 3 more"
    )
    assert strayed(before, replace(before, missing_bytes=9)) == "it is cut short by 9 bytes"


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (None, "no output tensor of its own"),
        (((256, 64), "Q4_0"), "in Q4_0, which is no larger"),
        (((256, 64), "Q3_K"), "in Q3_K, which is no larger"),
        (((72, 64), "F16"), "rows of 72 values"),
    ],
)
def test_where_it_gains_nothing_it_says_why(
    tmp_path: Path, output: tuple[tuple[int, ...], str] | None, why: str
) -> None:
    found = b2(header(tmp_path, output=output))
    assert isinstance(found, Absent)
    assert why in found.reason


def test_a_file_that_cannot_be_written_anew_is_refused(tmp_path: Path) -> None:
    whole = header(tmp_path)
    strange = replace(whole.tensors[0], type_name="type 99")
    for damaged, why in (
        (replace(whole, missing_bytes=7), "cut short by 7 bytes"),
        (replace(whole, metadata={"split.count": 3}), "split over several files"),
        (replace(whole, tensors=(strange, *whole.tensors[1:])), "type that this version"),
    ):
        found = b2(damaged)
        assert isinstance(found, Absent)
        assert why in found.reason
    assert isinstance(b2(replace(whole, metadata={"split.count": 1})), B2)
