"""The B2 recipe over files of any mixture: only the output tensor ever changes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mtpd.engine.b2 import B2, arguments, b2, strayed
from mtpd.engine.gguf import read_header
from tests.fakes.gguf_files import quantize, write_gguf

TYPES = st.sampled_from(["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K", "IQ4_NL"])
SHAPES = st.sampled_from([(256,), (256, 8), (512, 4), (256, 2, 3)])
NAMES = st.from_regex(r"blk\.[0-9]{1,2}\.[a-z_]{1,8}(\.[a-z_+-]{1,4})?\.weight", fullmatch=True)


@given(
    st.dictionaries(NAMES, st.tuples(SHAPES, TYPES), max_size=8),
    st.sampled_from(["F16", "Q6_K", "Q8_0", "Q4_K", "Q4_0"]),
)
def test_only_the_output_tensor_changes(
    others: dict[str, tuple[tuple[int, ...], str]], kind: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "a.gguf", Path(folder) / "b.gguf"
        before = read_header(write_gguf(source, {**others, "output.weight": ((256, 64), kind)}))
        found = b2(before)
        assert isinstance(found, B2) == (kind not in {"Q4_0", "Q4_K"})
        quantize(arguments(before, source=str(source), target=str(target)))
        after = read_header(target)
        assert strayed(before, after) is None
        if isinstance(found, B2):
            assert before.file_size - after.file_size == found.gained_bytes
