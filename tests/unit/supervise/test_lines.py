from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mtpd.supervise.lines import LINE_BYTES, Ring, Splitter


def split(*chunks: bytes) -> list[str]:
    splitter = Splitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines + splitter.end()


def test_lines_are_put_together_from_any_chunks() -> None:
    assert split(b"one\ntw", b"o\n", b"\nthr", b"ee") == ["one", "two", "", "three"]


def test_carriage_returns_and_colours_are_not_part_of_a_line() -> None:
    assert split(b"\x1b[32mok\x1b[0m\r\n") == ["ok"]


def test_garbage_becomes_readable_and_stays_one_line() -> None:
    (line,) = split(b"\xff\xfe\x00 \xe2\x80\xa8 \x1b tab\tend\n")
    assert line == "\ufffd\ufffd\ufffd \ufffd \ufffd tab\tend"


def test_a_long_line_is_cut_and_says_so() -> None:
    (line, after) = split(b"x" * (3 * LINE_BYTES), b"y\nnext\n")
    assert line == "x" * LINE_BYTES + " [cut]"
    assert after == "next"


def test_a_line_of_a_hundred_megabytes_does_not_grow_memory() -> None:
    splitter = Splitter()
    chunk = b"x" * 65536
    for _ in range(1600):
        assert splitter.feed(chunk) == []
    assert len(splitter._held) == LINE_BYTES
    assert len(splitter.feed(b"\n")) == 1


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_how_the_bytes_are_chunked_makes_no_difference(chunks: list[bytes]) -> None:
    assert split(*chunks) == split(b"".join(chunks))


@given(st.binary(max_size=200))
def test_every_line_is_one_line_of_printable_text(data: bytes) -> None:
    for line in split(data):
        assert len(line.splitlines()) <= 1
        assert all(c == "\t" or ord(c) >= 0x20 for c in line)
        line.encode()


def test_the_ring_keeps_the_last_lines_and_counts_all() -> None:
    ring = Ring(lines=3, chars=1000)
    for number in range(10):
        ring.add(str(number))
    assert ring.tail() == ("7", "8", "9")
    assert ring.tail(2) == ("8", "9")
    assert ring.total == 10


def test_the_ring_is_bounded_in_size_too() -> None:
    ring = Ring(lines=100, chars=10)
    for _ in range(5):
        ring.add("x" * 4)
    assert ring.tail() == ("xxxx", "xxxx")
    ring.add("y" * 50)
    assert ring.tail() == ()
    ring.add("z")
    assert ring.tail() == ("z",)
