"""Logging: one object per line, nothing injected, nothing leaked, nothing endless."""

from __future__ import annotations

import io
import json
import logging
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import anyio
import pytest
import structlog
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.errors import ConfigError
from mtpd.logs import MAX_FIELD, MalformedRequests, configure, tap

if TYPE_CHECKING:
    from collections.abc import Iterator

log = structlog.get_logger("tests.logs")


@contextmanager
def _logging(*, as_json: bool = True, level: str = "info") -> Iterator[io.StringIO]:
    """Configure logging into a buffer and put back what was there."""
    root = logging.getLogger()
    handlers, root_level = list(root.handlers), root.level
    before = structlog.get_config()
    out = io.StringIO()
    configure(json=as_json, level=level, stream=out)
    try:
        yield out
    finally:
        for handler in list(root.handlers):
            root.removeHandler(handler)
        for handler in handlers:
            root.addHandler(handler)
        root.setLevel(root_level)
        for name in ("aiohttp", "asyncio", "aiohttp.server"):
            logging.getLogger(name).setLevel(logging.NOTSET)
        server = logging.getLogger("aiohttp.server")
        for each in list(server.filters):
            server.removeFilter(each)
        structlog.configure(**before)


def _lines(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_an_event_is_one_json_object_with_its_values_as_fields() -> None:
    with _logging() as out:
        log.info("engine.transition", old="loading", new="ready", pid=42)
    (line,) = _lines(out)
    assert line["event"] == "engine.transition"
    assert (line["level"], line["old"], line["new"], line["pid"]) == (
        "info",
        "loading",
        "ready",
        42,
    )
    assert str(line["timestamp"]).endswith("Z")


def test_bound_context_is_part_of_every_line() -> None:
    with _logging() as out, structlog.contextvars.bound_contextvars(request_id="r-1"):
        log.info("request.begun")
    assert _lines(out)[0]["request_id"] == "r-1"


def test_lines_below_the_level_are_dropped() -> None:
    with _logging(level="warning") as out:
        log.info("quiet")
        log.warning("loud")
        logging.getLogger("other").info("quiet")
    assert [line["event"] for line in _lines(out)] == ["loud"]


def test_loggers_of_the_standard_library_come_out_the_same_way() -> None:
    with _logging() as out:
        logging.getLogger("asyncio").warning("slow callback %d", 7)
        logging.getLogger("asyncio").info("chatter")
        logging.getLogger("aiohttp.access").info("chatter")
    (line,) = _lines(out)
    assert (line["event"], line["logger"], line["level"]) == (
        "slow callback 7",
        "asyncio",
        "warning",
    )


def test_a_tap_hears_the_same_lines_as_people_read_them_while_it_is_open() -> None:
    heard: list[tuple[str, str]] = []
    with _logging() as out:
        with tap(lambda level, line: heard.append((level, line))):
            log.info("engine.ready", profile="a\x1b[31m")
            log.debug("chatter")
            logging.getLogger("asyncio").warning("slow")
        log.info("after")
    assert len(_lines(out)) == 3
    assert [level for level, _ in heard] == ["info", "warning"]
    first, second = (line for _, line in heard)
    assert "engine.ready" in first
    assert "profile=" in first
    assert "slow" in second
    assert "\x1b" not in first + second


def test_an_unknown_level_is_an_error_with_advice() -> None:
    with pytest.raises(ConfigError, match="loudly") as caught:
        configure(json=True, level="loudly")
    assert caught.value.hint == "use one of debug, info, warning, error, critical"


def test_configuring_twice_does_not_double_the_lines() -> None:
    with _logging() as out:
        configure(json=True, level="info", stream=out)
        log.info("once")
    assert len(_lines(out)) == 1


def test_a_long_field_is_cut_and_says_so() -> None:
    with _logging() as out:
        log.info("request.begun", header="x" * 1_000_000)
    (line,) = _lines(out)
    header = line["header"]
    assert isinstance(header, str)
    assert len(header) < MAX_FIELD + 100
    assert header.endswith("(1000000 characters)")


@pytest.mark.parametrize("as_json", [True, False])
def test_an_exception_keeps_its_last_lines(*, as_json: bool) -> None:
    with _logging(as_json=as_json) as out:
        try:
            dict[str, int]().pop("x" * 10_000 + "the end")
        except KeyError:
            log.exception("operation.crashed")
    assert "the end" in out.getvalue()
    assert len(out.getvalue()) < MAX_FIELD + 500


@settings(max_examples=80)
@given(
    text=st.text(max_size=60),
    key=st.text(min_size=1, max_size=20),
    number=st.floats(),
)
def test_whatever_is_logged_is_exactly_one_json_object(text: str, key: str, number: float) -> None:
    with _logging() as out:
        log.info("request.begun", **{f"k{key}": text}, number=number, inner=[{key: text}])
        logging.getLogger("asyncio").warning("%s", text)
    written = out.getvalue()
    assert written.isascii()
    assert all(character.isprintable() or character == "\n" for character in written)
    # str.splitlines knows more line ends than a log reader.
    assert len(written.splitlines()) == 2
    for line in written.splitlines():
        json.loads(line, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    msg = f"{constant} is no JSON"
    raise AssertionError(msg)


@settings(max_examples=80)
@given(text=st.text(max_size=60))
def test_nothing_that_is_logged_can_drive_a_terminal(text: str) -> None:
    with _logging(as_json=False) as out:
        log.info("request.begun", name=text, inner=(text,))
    written = out.getvalue()
    written.encode()
    assert len(written.splitlines()) == 1
    assert "\x1b" not in written
    assert "\x9b" not in written
    assert "\u202e" not in written


def _malformed(at: float) -> logging.LogRecord:
    error = BadHttpMessage("Authorization: Bearer SEKRET")
    record = logging.LogRecord(
        "aiohttp.server",
        logging.ERROR,
        __file__,
        1,
        "Error handling request from %s",
        ("10.0.0.1",),
        (type(error), error, None),
    )
    record.created = at
    return record


def test_malformed_requests_are_reported_seldom_and_counted() -> None:
    seldom = MalformedRequests(burst=2, window_s=60.0)
    passed = [seldom.filter(_malformed(float(second))) for second in range(10)]
    assert passed == [True, True] + [False] * 8

    later = _malformed(61.0)
    assert seldom.filter(later)
    assert later.__dict__["suppressed"] == 8


def test_a_clock_that_jumps_back_does_not_silence_the_report() -> None:
    seldom = MalformedRequests(burst=1, window_s=60.0)
    assert seldom.filter(_malformed(1000.0))
    assert seldom.filter(_malformed(10.0))


def test_other_errors_of_the_server_pass_unchanged() -> None:
    record = logging.LogRecord("aiohttp.server", logging.ERROR, __file__, 1, "%s", ("a",), None)
    seldom = MalformedRequests(burst=0)
    assert seldom.filter(record)
    assert record.getMessage() == "a"


async def test_the_real_server_does_not_leak_the_bytes_of_a_malformed_request() -> None:
    runner = web.AppRunner(web.Application())
    with _logging() as out:
        await runner.setup()
        sock = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, sock).start()
        for _ in range(20):
            async with await anyio.connect_tcp("127.0.0.1", sock.getsockname()[1]) as stream:
                await stream.send(b"GET / HTTP/1.1\r\nAuthorization Bearer SEKRET\r\n\r\n")
                with anyio.fail_after(10):
                    assert b"400" in await stream.receive()
        await runner.cleanup()
    assert "SEKRET" not in out.getvalue()
    events = [line["event"] for line in _lines(out) if line["logger"] == "aiohttp.server"]
    assert events == ["http.request_malformed"] * 3


async def test_bodies_that_are_not_in_their_encoding_are_reported_as_malformed_requests() -> None:
    runner = web.AppRunner(web.Application())
    body = (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\nSEKRET"
    )
    with _logging() as out:
        await runner.setup()
        sock = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, sock).start()
        for _ in range(5):
            async with await anyio.connect_tcp("127.0.0.1", sock.getsockname()[1]) as stream:
                await stream.send(body)
                with anyio.fail_after(10):
                    assert b"404" in await stream.receive()
                    with suppress(anyio.EndOfStream):
                        await stream.receive()
        await runner.cleanup()
    lines = [line for line in _lines(out) if line["logger"] == "aiohttp.server"]
    assert [line["event"] for line in lines] == ["http.request_malformed"] * 3
    assert all("exception" not in line for line in lines)
