"""Log lines over real connections: as JSON, and as a stream that is taken up again."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import anyio
import pytest

from mtpd.api.log_stream import MOST
from mtpd.api.routes import PREFIX
from mtpd.api.sse import StreamSettings
from mtpd.logfeed import DAEMON, LogFeed
from tests.fakes import views
from tests.fakes.backend import ScriptedBackend, Served, serving
from tests.fakes.clock import FakeClock
from tests.fakes.patience import SOON_S
from tests.fakes.sse import Got, Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

BUFFER = "0.01.000.000 I llama_kv_cache:      ROCm0 KV buffer size =   272.00 MiB"


def written() -> ScriptedBackend:
    """Three lines of an engine, the second of which is evidence, and one of the daemon."""
    backend = ScriptedBackend()
    lines = ["0.00.100.000 W odd", BUFFER, "bare"]
    backend.lines.add(views.QWEN, lines, engine_id="e1", notes=[(1, ("buffer", "residency"))])
    backend.lines.add(DAEMON, ["engine.ready"], level="info")
    return backend


async def asked(served: Served, query: str = "", after: str | None = None) -> tuple[int, Any]:
    headers = {} if after is None else {"Last-Event-ID": after}
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{served.port}{PREFIX}/logs{query}"
        async with session.get(url, headers=headers) as response:
            return response.status, await response.json()


@asynccontextmanager
async def following(
    served: Served, query: str = "", after: str | None = None
) -> AsyncIterator[Reader]:
    headers = {} if after is None else {"Last-Event-ID": after}
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{served.port}{PREFIX}/logs?follow=true{query}"
        async with session.get(url, headers=headers) as response:
            yield Reader(response)


def texts(got: Got | dict[str, Any]) -> list[str]:
    data = got.data if isinstance(got, Got) else got
    return [line["text"] for line in data["lines"]]


async def test_without_following_the_latest_lines_are_json(tmp_path: Path) -> None:
    async with serving(written(), tmp_path / "s") as served:
        status, body = await asked(served)
    assert status == 200
    assert {name: body[name] for name in ("boot", "seq", "lost")} == {
        "boot": "b1",
        "seq": 4,
        "lost": False,
    }
    assert body["lines"][1] == {
        "seq": 2,
        "at": "2026-11-29T12:00:00.000Z",
        "source": "engine",
        "profile": views.QWEN,
        "engine_id": "e1",
        "level": "info",
        "text": BUFFER,
        "fact": "buffer",
        "about": "residency",
    }
    assert [line["level"] for line in body["lines"]] == ["warning", "info", None, "info"]
    assert body["lines"][3]["source"] == "daemon"
    assert body["lines"][3]["profile"] is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?tail=1", ["engine.ready"]),
        ("?tail=0", []),
        ("?source=daemon", ["engine.ready"]),
        ("?source=engines&tail=2", [BUFFER, "bare"]),
        (f"?model={views.QWEN}&tail=1", ["bare"]),
        ("?about=residency", [BUFFER]),
        ("?about=failure,%20request", []),
        ("?after=b1-2", ["bare", "engine.ready"]),
        ("?after=0&tail=1", ["0.00.100.000 W odd", BUFFER, "bare", "engine.ready"]),
    ],
)
async def test_the_query_chooses(query: str, expected: list[str], tmp_path: Path) -> None:
    async with serving(written(), tmp_path / "s") as served:
        status, body = await asked(served, query)
    assert (status, texts(body), body["lost"]) == (200, expected, False)


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        ("?model=nobody", 404, "There is no model 'nobody'."),
        ("?about=weather", 400, "about: there is no 'weather'; there are start, residency"),
        (f"?model={views.QWEN}&source=daemon", 400, "source: a model's lines"),
        ("?source=both", 400, "source: "),
        ("?tail=10001", 400, "tail: "),
        ("?after=x", 400, "'x' is not an id of this stream"),
    ],
)
async def test_what_cannot_be_is_refused(
    query: str, status: int, told: str, tmp_path: Path
) -> None:
    async with serving(written(), tmp_path / "s") as served:
        got, body = await asked(served, query)
    assert got == status
    assert body["detail"].startswith(told)


async def test_a_follower_gets_the_tail_and_then_what_comes(tmp_path: Path) -> None:
    backend = written()
    async with serving(backend, tmp_path / "s") as served:
        async with following(served, "&tail=2") as reader:
            opened, tail = await reader.some(), await reader.some()
            backend.lines.add(DAEMON, ["next"], level="error")
            news = await reader.some()
    assert opened == Got("stream.open", None, {"boot": "b1", "seq": 4})
    assert (tail.type, tail.id, texts(tail)) == ("log.lines", "b1-4", ["bare", "engine.ready"])
    assert (news.type, news.id, texts(news)) == ("log.lines", "b1-5", ["next"])
    assert news.data["lines"][0]["level"] == "error"


async def test_without_a_tail_the_place_is_told_at_once(tmp_path: Path) -> None:
    async with serving(written(), tmp_path / "s") as served:
        async with following(served, "&tail=0") as reader:
            assert (await reader.some()).id == "b1-4"


async def test_a_follower_that_comes_back_misses_nothing_and_gets_nothing_twice(
    tmp_path: Path,
) -> None:
    backend = ScriptedBackend()
    numbers = [str(number) for number in range(4 * MOST)]
    backend.lines.add("a", numbers[: 3 * MOST])
    got: list[str] = []
    async with serving(backend, tmp_path / "s") as served:
        place: str | None = "0"
        for _ in range(3):
            async with following(served, after=place) as reader:
                assert (await reader.some()).type == "stream.open"
                batch = await reader.some()  # the rest of it is cut off with the connection
                got, place = [*got, *texts(batch)], batch.id
        async with following(served, after=place) as reader:
            assert (await reader.some()).id == f"b1-{3 * MOST}"
            backend.lines.add("a", numbers[3 * MOST :])
            got += texts(await reader.some())
    assert got == numbers


async def test_lines_that_are_gone_are_told_and_so_is_another_life(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    backend.lines = LogFeed(clock=FakeClock(), lines=2)
    backend.lines.add("a", ["1", "2", "3", "4"])
    async with serving(backend, tmp_path / "s") as served:
        for place in ("b1-1", "b0-3", "b1-99"):
            async with following(served, after=place) as reader:
                kinds = [await reader.some() for _ in range(3)]
            assert [one.type for one in kinds] == ["stream.open", "stream.reset", "log.lines"]
            assert texts(kinds[2]) == ["3", "4"]
            assert (await asked(served, after=place))[1]["lost"] is True
        assert (await asked(served, after="b1-2"))[1]["lost"] is False
        assert (await asked(served, after="0"))[1]["lost"] is False


async def test_a_flood_is_told_to_a_reader_that_cannot_keep_up(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    backend.lines = LogFeed(clock=FakeClock(), chars=100)
    async with serving(backend, tmp_path / "s") as served:
        async with following(served) as reader:
            await reader.some()
            backend.lines.add("a", ["x" * 9] * 100)  # before the reader can run
            reset, rest = await reader.some(), await reader.some()
    assert reset.type == "stream.reset"
    assert reset.data["reason"] == "90 lines came too fast for this reader"
    assert (len(texts(rest)), rest.id) == (10, "b1-100")


async def test_a_follower_is_told_only_what_it_asked_for(tmp_path: Path) -> None:
    backend = written()
    async with serving(backend, tmp_path / "s") as served:
        async with following(served, "&about=residency&source=engines&tail=0") as reader:
            await reader.some()
            backend.lines.add(DAEMON, ["no"])
            backend.lines.add("a", ["no", "yes"], notes=[(1, ("fit_ok", "residency"))])
            assert texts(await reader.some()) == ["yes"]


async def test_a_follower_that_leaves_or_takes_nothing_is_let_go(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    backend.lines = LogFeed(clock=FakeClock(), chars=64 * 1024 * 1024)
    timing = StreamSettings(ping_s=0.05, send_timeout_s=0.2)
    async with serving(backend, tmp_path / "s", stream=timing) as served:
        async with following(served) as reader:
            await reader.some()
            assert len(backend.lines._readers) == 1
        await until_nobody_reads(backend)
        head = f"GET {PREFIX}/logs?follow=1 HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n"
        async with await anyio.connect_tcp("127.0.0.1", served.port) as stream:
            await stream.send(head.encode())
            await stream.receive()
            backend.lines.add("a", ["x" * 65536] * 400)  # more than the sockets' buffers hold
            await until_nobody_reads(backend)
    assert backend.bus.dropped == 1


async def until_nobody_reads(backend: ScriptedBackend) -> None:
    with anyio.fail_after(SOON_S):
        while backend.lines._readers:  # noqa: ASYNC110  # the feed has no event for it
            await anyio.sleep(0.01)
