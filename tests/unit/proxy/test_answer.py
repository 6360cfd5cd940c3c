"""What an engine's response is taken for, read by read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.proxy.answer import BEFORE, GARBLED, MAX_BETWEEN_BYTES, WITHIN
from mtpd.proxy.outcomes import UpstreamLostError
from tests.fakes.wire import answered

if TYPE_CHECKING:
    from collections.abc import Awaitable

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
FIVE = OK + b"Content-Length: 5\r\n\r\n"


class Taker:
    """Always has room."""

    def __init__(self) -> None:
        self.came = b""

    def take(self, piece: bytes) -> bool:
        self.came += piece
        return True

    async def room(self) -> None:
        pass

    async def wait(self, coming: Awaitable[None]) -> None:
        await coming


async def whole(*reads: bytes, bodiless: bool = False) -> bytes:
    """The body of a response that needs no end of the connection, as it is relayed."""
    answer, wire = answered(bodiless=bodiless)
    taker = Taker()
    relaying = asyncio.get_running_loop().create_task(answer.relay(taker))
    await anyio.lowlevel.checkpoint()
    for data in reads:
        wire.feed(data)
    await relaying
    return taker.came


async def test_a_head_is_read_whatever_its_spelling() -> None:
    answer, _ = answered(
        b"HTTP/1.1 404 Not Here\r\nCONTENT-type:  Text/Event-Stream; charset=utf-8\r\n",
        b"X-One: 1\r\nx-one: 2\r\ncontent-length: 0\r\n\r\n",
    )
    await answer.begun()
    assert (answer.status, answer.reason) == (404, "Not Here")
    assert answer.content_type == "text/event-stream"
    assert answer.headers["x-one"] == "1"
    assert answer.over


@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(
    "wire",
    [
        CHUNKED + b"2\r\nab\r\n3;x=y\r\ncde\r\n0\r\n\r\n",
        CHUNKED + b"5\r\nabcde\r\n0\r\nX-Trailer: t\r\n\r\n",
        FIVE + b"abcde",
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + FIVE + b"abcde",
    ],
)
async def test_a_body_is_read_in_any_coding_and_any_cut(wire: bytes, step: int) -> None:
    assert await whole(*(wire[n : n + step] for n in range(0, len(wire), step))) == b"abcde"


async def test_a_head_that_only_announces_another_is_not_the_answer() -> None:
    answer, wire = answered(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
    assert answer.status == 0
    wire.feed(FIVE)
    assert (answer.status, answer.headers) == (200, {"content-length": "5"})


async def test_nothing_follows_the_head_that_answers_a_head() -> None:
    assert await whole(FIVE, bodiless=True) == b""


async def test_what_follows_a_whole_response_is_nobodys() -> None:
    answer, wire = answered(FIVE + b"abcde")
    assert await answer.chunk() == b"abcde"
    answer, wire = answered(FIVE, b"abcde")
    wire.resume_reading()
    wire.feed(b"HTTP/1.1 200 OK\r\n\r\n")
    assert [await answer.chunk(), await answer.chunk()] == [b"abcde", b""]


@pytest.mark.parametrize("first", [FIVE + b"abcde", CHUNKED + b"5\r\nabcde\r\n0\r\n\r\n"])
async def test_a_second_response_in_the_same_read_changes_nothing(first: bytes) -> None:
    answer, _ = answered(first + b"HTTP/1.1 418 Other\r\nContent-Length: 5\r\n\r\nother")
    assert (answer.status, answer.reason) == (200, "OK")
    assert [await answer.chunk(), await answer.chunk()] == [b"abcde", b""]


@pytest.mark.parametrize("reason", [b"O\x01K", b"O\x7fK"])
async def test_a_reason_that_no_client_may_be_told_is_left_out(reason: bytes) -> None:
    answer, _ = answered(b"HTTP/1.1 200 " + reason + b"\r\nContent-Length: 0\r\n\r\n")
    assert (answer.status, answer.reason, answer.over) == (200, "", True)


async def test_a_body_of_no_declared_length_ends_with_the_connection() -> None:
    answer, wire = answered(OK + b"\r\nabc")
    wire.end()
    assert [await answer.chunk(), await answer.chunk()] == [b"abc", b""]


@pytest.mark.parametrize(
    ("begun", "error", "why"),
    [
        (b"", None, BEFORE),
        (OK, None, BEFORE),
        (CHUNKED, None, WITHIN),
        (CHUNKED + b"5\r\nabc", None, WITHIN),
        (FIVE + b"abcd", None, WITHIN),
        (OK + b"\r\nabc", ConnectionResetError(), WITHIN),
    ],
)
async def test_a_connection_that_ends_too_early_loses_the_response_behind_what_has_come(
    begun: bytes, error: Exception | None, why: str
) -> None:
    answer, wire = answered(begun)
    wire.end(error)
    came = begun.partition(b"\r\n\r\n")[2].removeprefix(b"5\r\n")
    if came:
        assert await answer.chunk() == came
    with pytest.raises(UpstreamLostError, match=why):
        await answer.chunk()


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 101 Other\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nxy",
        b"HTTP/1.1 099 Less\r\nContent-Length: 2\r\n\r\nok",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nxy\r\n0\r\n\r\n",
        OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n0\r\n\r\n",
    ],
)
async def test_what_cannot_be_passed_on_is_given_up_at_once(said: bytes) -> None:
    answer, wire = answered(said)
    assert wire.closed
    await answer.begun()
    with pytest.raises(UpstreamLostError, match=GARBLED):
        answer.must_have_begun()


@pytest.mark.parametrize(
    "begun", [OK + b"X-Long: ", CHUNKED + b"2\r\nok\r\n0\r\nX-Long: ", CHUNKED + b"2;x="]
)
async def test_a_header_without_end_is_given_up_and_not_kept(begun: bytes) -> None:
    answer, wire = answered(begun)
    if b"ok" in begun:
        assert await answer.chunk() == b"ok"
    wire.resume_reading()
    for _ in range(MAX_BETWEEN_BYTES // 1024):
        assert not wire.closed
        wire.feed(b"a" * 1024)
    wire.feed(b"a" * 1024)
    assert wire.closed
    assert answer.over


async def test_nothing_more_is_read_before_somebody_takes_what_has_come() -> None:
    answer, wire = answered(CHUNKED)
    reading = [wire.reading]
    wire.feed(b"1\r\na\r\n")
    reading.append(wire.reading)
    assert await answer.chunk() == b"a"
    asking = asyncio.get_running_loop().create_task(answer.chunk())
    await anyio.lowlevel.checkpoint()
    reading.append(wire.reading)
    assert reading == [True, False, True]
    wire.feed(b"1\r\nb\r\n")
    assert await asking == b"b"


async def test_a_request_waits_for_the_engine_to_take_it_or_to_go() -> None:
    for goes_on in (True, False):
        answer, wire = answered()
        answer.pause_writing()
        sending = asyncio.get_running_loop().create_task(answer.send(b"a", b"b"))
        await anyio.lowlevel.checkpoint()
        assert (wire.sent, sending.done()) == (b"ab", False)
        answer.resume_writing() if goes_on else wire.end()
        await sending
