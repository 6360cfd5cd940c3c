"""The event stream over real connections."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.api.filters import OLDEST, format_position, parse_position, unknown_types, wants
from mtpd.api.routes import PREFIX
from mtpd.api.sse import StreamSettings
from mtpd.events import EVENT_TYPES, DaemonStarted, DaemonStopping, DecisionMade
from tests.fakes import views
from tests.fakes.backend import ScriptedBackend, Served, serving
from tests.fakes.patience import SOON_S
from tests.fakes.sse import Got, Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@asynccontextmanager
async def listening(
    served: Served, query: str = "", after: str | None = None
) -> AsyncIterator[Reader]:
    headers = {} if after is None else {"Last-Event-ID": after}
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{served.port}{PREFIX}/events{query}"
        async with session.get(url, headers=headers) as response:
            yield Reader(response)


def started(backend: ScriptedBackend, *versions: str) -> None:
    for version in versions:
        backend.bus.publish(DaemonStarted(version=version))


def versions(got: list[Got | None]) -> list[str]:
    return [one.data["event"]["version"] for one in got if one is not None and "event" in one.data]


async def test_a_new_reader_gets_what_happens_from_now_on(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    started(backend, "1", "2")
    async with serving(backend, tmp_path / "s") as served, listening(served) as reader:
        opened = await reader.next()
        started(backend, "3")
        event = await reader.next()
    assert opened == Got("stream.open", "b1-2", {"boot": "b1", "seq": 2})
    assert event is not None
    assert (event.type, event.id) == ("daemon.started", "b1-3")
    assert list(event.data) == ["boot", "seq", "at", "cause", "type", "event", "ids"]
    assert event.data["event"] == {"version": "3"}
    assert reader.response.content_type == "text/event-stream"


@pytest.mark.parametrize("way", ["header", "query"])
async def test_a_reader_that_comes_back_misses_nothing(way: str, tmp_path: Path) -> None:
    backend = ScriptedBackend()
    started(backend, "1", "2", "3")
    async with serving(backend, tmp_path / "s") as served:
        query, after = ("", "b1-1") if way == "header" else ("?after=b1-1", None)
        async with listening(served, query, after) as reader:
            got = await reader.take(3)
    assert versions(got) == ["2", "3"]
    assert got[0] is not None
    assert got[0].id is None, "an id here would make a reader skip the replay when it reconnects"


async def test_however_often_it_comes_back_it_gets_each_event_once(tmp_path: Path) -> None:
    backend, got, place = ScriptedBackend(), list[str](), OLDEST
    async with serving(backend, tmp_path / "s") as served:
        for life in range(20):
            # Some come while nobody reads, some while it does; it leaves in the middle.
            started(backend, *(f"{life}.{number}" for number in range(life % 4)))
            async with listening(served, after=place) as reader:
                assert (await reader.some()).type == "stream.open"
                started(backend, f"{life}.late", f"{life}.later")
                for _ in range(life % 4 + 1):
                    event = await reader.some()
                    assert event.id is not None
                    got, place = [*got, event.data["event"]["version"]], event.id
        async with listening(served, after=place) as reader:
            await reader.some()
            while len(got) < backend.bus.seq:
                got.append((await reader.some()).data["event"]["version"])
    assert got == [
        f"{life}.{what}"
        for life in range(20)
        for what in (*map(str, range(life % 4)), "late", "later")
    ]


async def test_zero_means_all_that_are_kept(tmp_path: Path) -> None:
    backend = ScriptedBackend(keep=2)
    started(backend, "1", "2", "3")
    async with serving(backend, tmp_path / "s") as served:
        async with listening(served, after=OLDEST) as reader:
            got = await reader.take(3)
    assert versions(got) == ["2", "3"]
    assert [one.type for one in got if one is not None] == ["stream.open", *["daemon.started"] * 2]


async def test_a_gap_is_told_before_the_first_event_after_it(tmp_path: Path) -> None:
    backend = ScriptedBackend(keep=2)
    started(backend, "1", "2", "3", "4")
    async with serving(backend, tmp_path / "s") as served:
        async with listening(served, after="b1-1") as reader:
            got = await reader.take(4)
    kinds = [one.type for one in got if one is not None]
    assert kinds == ["stream.open", "stream.reset", "daemon.started", "daemon.started"]
    assert got[1] is not None
    assert got[1].data == {"boot": "b1", "seq": 2, "reason": "events 2 to 2 are gone"}
    assert versions(got) == ["3", "4"]


@pytest.mark.parametrize("after", ["b0-7", "b1-9"])
async def test_a_place_of_another_life_is_reset_and_replayed_from_the_start(
    after: str, tmp_path: Path
) -> None:
    backend = ScriptedBackend()
    started(backend, "1", "2")
    async with serving(backend, tmp_path / "s") as served:
        async with listening(served, after=after) as reader:
            got = await reader.take(4)
    assert [one.type for one in got if one is not None][:2] == ["stream.open", "stream.reset"]
    assert versions(got) == ["1", "2"]


@pytest.mark.parametrize("after", ["nonsense", "b1-", "-3", "b1-x", "b1--", "b1-1.5"])
async def test_a_place_that_is_none_is_refused(after: str, tmp_path: Path) -> None:
    async with serving(ScriptedBackend(), tmp_path / "s") as served:
        async with listening(served, after=after) as reader:
            assert reader.response.status == 400
            assert (await reader.response.json())["type"] == "urn:mtpd:problem:invalid-event-id"


async def test_a_filter_lets_through_types_and_their_families(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    async with serving(backend, tmp_path / "s") as served:
        async with listening(served, "?types=decision,daemon.stopping") as reader:
            await reader.next()
            started(backend, "1")
            backend.bus.publish(DecisionMade(decision=views.decision()))
            backend.bus.publish(DaemonStopping(reason="told to"))
            got = await reader.take(2)
    assert [(one.type, one.id) for one in got if one is not None] == [
        ("decision.made", "b1-2"),
        ("daemon.stopping", "b1-3"),
    ]


async def test_pings_keep_a_quiet_stream_alive(tmp_path: Path) -> None:
    settings = StreamSettings(ping_s=0.01, send_timeout_s=5)
    async with serving(ScriptedBackend(), tmp_path / "s", stream=settings) as served:
        async with listening(served) as reader:
            await reader.next()
            with anyio.fail_after(5):
                assert await reader.response.content.readline() == b": ping\r\n"


async def test_a_reader_that_leaves_is_let_go(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    async with serving(backend, tmp_path / "s") as served:
        async with listening(served) as reader:
            await reader.next()
            assert len(backend.bus._readers) == 1
        await until_nobody_reads(backend)
    assert backend.bus.dropped == 0, "who leaves was not too slow"


async def test_a_reader_that_falls_behind_is_told_and_ended(tmp_path: Path) -> None:
    backend = ScriptedBackend(queue=2)
    async with serving(backend, tmp_path / "s") as served, listening(served) as reader:
        await reader.next()
        started(backend, *"abcd")  # more than the queue takes, before the reader can run
        got = [await reader.next() for _ in range(4)]
    assert versions(got) == ["a", "b"]
    assert [one.type if one else None for one in got[2:]] == ["stream.dropped", None]
    assert backend.bus.dropped == 1


async def test_a_reader_that_takes_nothing_is_disconnected(tmp_path: Path) -> None:
    backend = ScriptedBackend(queue=100_000)
    settings = StreamSettings(ping_s=0.05, send_timeout_s=0.2)
    async with serving(backend, tmp_path / "s", stream=settings) as served:
        head = f"GET {PREFIX}/events HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n"
        async with await anyio.connect_tcp("127.0.0.1", served.port) as stream:
            await stream.send(head.encode())
            await stream.receive()
            started(backend, *(["x" * 65536] * 400))  # more than the sockets' buffers hold
            await until_nobody_reads(backend)
    assert backend.bus.dropped == 1, "nobody can be told, but somebody can count"


async def test_open_streams_end_when_the_daemon_does(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    async with aiohttp.ClientSession() as session:
        with anyio.fail_after(SOON_S):
            async with serving(backend, tmp_path / "s") as served:
                url = f"http://127.0.0.1:{served.port}{PREFIX}/events"
                response = await session.get(url)
                await Reader(response).next()
            assert await Reader(response).next() is None
            response.release()


async def test_the_stream_ends_when_the_bus_is_closed(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    async with serving(backend, tmp_path / "s") as served, listening(served) as reader:
        await reader.next()
        backend.bus.publish(DaemonStopping(reason="told to"))
        backend.bus.close()
        got = await reader.take(2)
    assert [one.type if one else None for one in got] == ["daemon.stopping", None]


async def until_nobody_reads(backend: ScriptedBackend) -> None:
    with anyio.fail_after(5):
        while backend.bus._readers:  # noqa: ASYNC110  # the bus has no event for it
            await anyio.sleep(0.01)


@given(st.text(min_size=1, max_size=20), st.integers(min_value=0, max_value=10**18 - 1))
def test_a_place_survives_being_written_and_read(boot: str, seq: int) -> None:
    assert parse_position(format_position(boot, seq)) == (boot, seq)


@given(st.text(max_size=30))
def test_any_text_is_a_place_or_none(text: str) -> None:
    place = parse_position(text)
    assert place is None or (place[1] >= 0 and place[1] < 2**63)


@pytest.mark.parametrize(
    ("types", "kind", "passes"),
    [
        (None, "engine.transition", True),
        ("engine", "engine.transition", True),
        ("engine.transition", "engine.transition", True),
        ("engine.trans", "engine.transition", False),
        ("eng", "engine.transition", False),
        ("decision, engine", "engine.transition", True),
        ("", "engine.transition", False),
        ("decision", "stream.reset", True),
    ],
)
def test_filters(types: str | None, kind: str, passes: bool) -> None:  # noqa: FBT001  # table
    assert wants(types, kind) is passes


@pytest.mark.parametrize("types", ["nonsense", "decision,engine.nonsense", "engine.transition.x"])
async def test_a_filter_that_names_no_type_is_refused_with_those_there_are(
    types: str, tmp_path: Path
) -> None:
    async with (
        serving(ScriptedBackend(), tmp_path / "s") as served,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{served.port}{PREFIX}/events?types={types}") as response,
    ):
        body = await response.json()
        assert (response.status, body["title"]) == (400, "There is no such event type")
        assert repr(types.rsplit(",", 1)[-1]) in body["detail"]
        assert "engine.transition" in body["detail"]


@given(st.text(max_size=40))
def test_a_filter_lets_something_through_or_is_refused(types: str) -> None:
    if unknown_types(types) is None and types.strip(", \t\n"):
        assert any(wants(types, kind) for kind in (*EVENT_TYPES, "stream.open"))


@pytest.mark.parametrize("types", [None, "", " ,", "stream", "stream.open", "engine,decision.made"])
def test_what_is_known_is_not_refused(types: str | None) -> None:
    assert unknown_types(types) is None
