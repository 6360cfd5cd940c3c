"""The model of a form is found in any chunking, and no bytes are a surprise."""

from __future__ import annotations

from email.message import Message

from hypothesis import given
from hypothesis import strategies as st

from mtpd.proxy.form_scan import FormScan, boundary_of

BOUNDARY = b"B0"
NAMES = st.sampled_from([b"model", b"file", b"language", b"models", b"mode"])


def scan(raw: bytes, step: int) -> FormScan:
    made = FormScan(BOUNDARY)
    for start in range(0, len(raw), step):
        made.feed(raw[start : start + step])
    return made


@given(st.binary(max_size=600), st.integers(1, 100))
def test_any_bytes_end_in_an_answer_that_does_not_depend_on_the_chunking(
    raw: bytes, step: int
) -> None:
    raw = raw.replace(b"b", b"\r\n--B0").replace(b"n", b'\r\ncontent-disposition:x;name="model"')
    once, cut = scan(raw, len(raw) or 1), scan(raw, step)
    assert (once.model, once.problem, once.decided) == (cut.model, cut.problem, cut.decided)


@given(
    st.lists(st.tuples(NAMES, st.binary(max_size=80)), max_size=6),
    st.integers(1, 60),
)
def test_the_first_field_called_model_is_the_one(
    parts: list[tuple[bytes, bytes]], step: int
) -> None:
    parts = [(n, v.replace(b"\r\n--B0", b"") if n != b"model" else b"m%d" % i)
             for i, (n, v) in enumerate(parts)]  # fmt: skip
    raw = b"".join(
        b'--B0\r\nContent-Disposition: form-data; name="' + n + b'"\r\n\r\n' + v + b"\r\n"
        for n, v in parts
    )
    wanted = next((v.decode() for n, v in parts if n == b"model"), None)
    assert scan(raw + b"--B0--\r\n", step).model == wanted


@given(st.text(max_size=60))
def test_a_content_type_is_read_as_the_standard_library_reads_it_and_never_raises(
    text: str,
) -> None:
    message = Message()
    message["Content-Type"] = kind = f"multipart/form-data; boundary={text}"
    expected = message.get_boundary() or ""
    assert boundary_of(kind) == (expected.encode() if expected.isascii() and expected else None)
    assert boundary_of(text) is None
