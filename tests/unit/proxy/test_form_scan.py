from __future__ import annotations

import pytest

from mtpd.proxy.form_scan import FormScan, boundary_of

FILE = b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav'


def form(*parts: tuple[bytes, bytes], boundary: bytes = b"B", end: bytes = b"--\r\n") -> bytes:
    written = b"".join(b"--" + boundary + b"\r\n" + h + b"\r\n\r\n" + v + b"\r\n" for h, v in parts)
    return written + b"--" + boundary + end


def field(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    return b'Content-Disposition: form-data; name="' + name + b'"', value


def scanned(raw: bytes, step: int = 1_000_000, boundary: bytes = b"B") -> FormScan:
    scan = FormScan(boundary)
    for start in range(0, len(raw), step):
        scan.feed(raw[start : start + step])
    return scan


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_the_model_is_found_in_any_chunking_before_and_behind_the_file(step: int) -> None:
    audio = b"\r\n--\r\n--BX\r\nname=model\r\n\r\n" * 5
    for raw in (
        form(field(b"model", b"whisper-1"), (FILE, audio)),
        form((FILE, audio), field(b"language", b"en"), field(b"model", b"whisper-1")),
    ):
        scan = scanned(raw, step)
        assert (scan.model, scan.problem, scan.decided) == ("whisper-1", None, True)


def test_a_form_without_the_field_ends_undecided_for_a_model() -> None:
    scan = scanned(form((FILE, b"x"), field(b"models", b"no")))
    assert (scan.model, scan.problem, scan.decided) == (None, None, True)


@pytest.mark.parametrize(
    "head",
    [
        b"content-disposition: form-data; name=model",
        b'Content-Type: text/plain\r\nCONTENT-DISPOSITION:form-data;NAME="model"',
    ],
)
def test_headers_are_read_as_clients_write_them(head: bytes) -> None:
    assert scanned(form((head, b" m \r\n"))).model == "m"


def test_a_name_of_a_file_is_not_a_name_of_a_field() -> None:
    head = b'Content-Disposition: form-data; filename="model"; name="file"'
    assert scanned(form((head, b"x"))).model is None


def test_padding_behind_a_boundary_and_a_preamble_are_allowed() -> None:
    raw = b'preamble\r\n--B \t\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--B--'
    assert scanned(raw, 1).model == "m"


def test_a_part_without_headers_is_passed_over() -> None:
    raw = b"--B\r\n\r\nx\r\n" + form(field(b"model", b"m"))
    assert scanned(raw, 1).model == "m"


@pytest.mark.parametrize(
    "raw",
    [
        b"--B\r\n" + b"x" * 20_000,
        form(field(b"model", b"m" * 2000)),
        b"--B" + b" " * 20_000,
    ],
)
def test_what_is_endless_is_given_up_in_bounded_memory(raw: bytes) -> None:
    scan = scanned(raw, 100)
    assert scan.decided
    assert scan.problem is not None
    assert scan.model is None


def test_data_of_other_parts_is_not_kept() -> None:
    scan = FormScan(b"B")
    scan.feed(b"--B\r\n" + FILE + b"\r\n\r\n")
    for _ in range(100):
        scan.feed(b"\r\n--" * 2500)
    assert len(scan._held) < 100


def test_a_model_that_is_not_text_is_a_problem() -> None:
    assert scanned(form(field(b"model", b"\xff"))).problem == "the field 'model' is not UTF-8"


@pytest.mark.parametrize(
    ("kind", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('Multipart/Form-Data; charset=utf-8; boundary="a b"', b"a b"),
        ("multipart/form-data", None),
        ("multipart/mixed; boundary=abc", None),
        ("application/json", None),
        ("", None),
        ("multipart/form-data; boundary=\u00e9", None),
    ],
)
def test_the_boundary_is_that_of_a_form(kind: str, boundary: bytes | None) -> None:
    assert boundary_of(kind) == boundary
