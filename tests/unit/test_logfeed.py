from __future__ import annotations

import threading

import anyio
from hypothesis import given
from hypothesis import strategies as st

from mtpd.logfeed import DAEMON, MARKED_LINES, Line, LogFeed, Source
from tests.fakes.clock import FakeClock

BUFFER = ("buffer", "residency")
EVAL = ("eval_time", "request")


def everything(_source: Source) -> bool:
    return True


def feed_of(*, lines: int = 1000, chars: int = 256 * 1024) -> LogFeed:
    return LogFeed(clock=FakeClock(), marked={"residency"}, lines=lines, chars=chars)


def texts(lines: list[Line]) -> list[str]:
    return [line.text for line in lines]


def test_the_history_has_the_lines_of_all_sources_in_their_order() -> None:
    feed = feed_of()
    feed.add("a", ["1", "2"])
    feed.add(DAEMON, ["3"])
    feed.add("a", ["4"])
    assert feed.history(everything) == "1\n2\n3\n4\n"
    assert feed.history(lambda source: source is DAEMON) == "3\n"
    assert feed.history(lambda source: source == "b") == ""


def test_a_line_knows_when_it_came_from_which_start_and_what_it_says() -> None:
    feed = feed_of()
    feed.add("a", ["chatter", "KV buffer"], engine_id="e1", notes=[(1, BUFFER)])
    feed.add(DAEMON, ["oh"], level="warning")
    at = "2026-11-29T12:00:00.000Z"
    assert feed.kept(everything)[1] == [
        Line(1, at, "a", "e1", None, "chatter"),
        Line(2, at, "a", "e1", None, "KV buffer", *BUFFER),
        Line(3, at, DAEMON, None, "warning", "oh"),
    ]
    assert feed.seq == 3


def test_a_flood_pushes_out_its_own_lines_only() -> None:
    feed = feed_of(lines=3, chars=1000)
    feed.add(DAEMON, ["kept"])
    feed.add("a", [str(n) for n in range(100)])
    assert feed.history(everything) == "kept\n97\n98\n99\n"
    feed.add("a", ["x" * 999])
    assert feed.history(lambda source: source == "a") == "x" * 999 + "\n"


def test_a_flood_of_requests_does_not_push_out_what_the_start_printed() -> None:
    feed = feed_of(lines=3)
    feed.add("a", ["KV buffer"], notes=[(0, BUFFER)])
    feed.add("a", ["eval"] * 10, notes=[(n, EVAL) for n in range(10)])
    gone, found = feed.kept(everything, {"residency"})
    assert (gone, texts(found)) == (False, ["KV buffer"])
    gone, found = feed.kept(everything, {"residency", "request"})
    assert (gone, texts(found)) == (True, ["KV buffer", "eval", "eval", "eval"])
    assert texts(feed.kept(everything)[1]) == ["eval"] * 3, "without a hole in the middle"


def test_what_starts_printed_is_bounded_too() -> None:
    feed = feed_of(lines=3)
    for number in range(MARKED_LINES + 5):
        feed.add("a", [str(number)], notes=[(0, BUFFER)])
    gone, found = feed.kept(everything, {"residency"})
    assert (gone, len(found), found[0].text) == (True, MARKED_LINES, "5")


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.booleans(), st.integers(1, 4))),
    st.integers(0, 40),
    st.sampled_from([None, frozenset({"residency"}), frozenset({"residency", "request"})]),
)
def test_what_is_kept_after_a_place_is_all_there_was_or_said_to_be_less(
    batches: list[tuple[Source, bool, int]], after: int, about: frozenset[str] | None
) -> None:
    feed, written = feed_of(lines=4), []
    for source, marked, count in batches:
        note = BUFFER if marked else EVAL
        for _ in range(count):
            feed.add(source, ["x"], notes=[(0, note)])
            written.append((feed.seq, source, note[1]))
    wanted = [
        seq
        for seq, source, of in written
        if seq > after and source != "b" and (about is None or of in about)
    ]
    gone, found = feed.kept(lambda source: source != "b", about, after=after)
    numbers = [line.seq for line in found]
    assert numbers == sorted(set(numbers))
    assert set(numbers) <= set(wanted)
    assert gone or numbers == wanted


async def test_a_reader_gets_what_comes_after_it_began_from_its_sources() -> None:
    feed = feed_of()
    feed.add("a", ["before"])
    with feed.follow(lambda source: source != "b") as reader:
        feed.add("a", ["1", "2"])
        feed.add("b", ["not wanted"])
        feed.add(DAEMON, ["3"])
        assert await reader.next() == ("a", "1\n2\n")
        assert await reader.next() == (DAEMON, "3\n")
        async with anyio.create_task_group() as tasks:
            got: list[tuple[Source, str]] = []

            async def read() -> None:
                got.append(await reader.next())

            tasks.start_soon(read)
            await anyio.lowlevel.checkpoint()
            feed.add("a", ["4"])
        assert got == [("a", "4\n")]
    feed.add("a", ["after"])
    assert not reader._lines


async def test_a_reader_takes_so_many_at_once_and_only_what_it_asks_about() -> None:
    feed = feed_of()
    with feed.follow(everything, {"residency"}) as reader:
        feed.add("a", list("xKyLM"), notes=[(0, EVAL), (1, BUFFER), (3, BUFFER), (4, BUFFER)])
        missed, found = await reader.take(2)
        assert (missed, texts(found)) == (0, ["K", "L"])
        missed, found = await reader.take(2)
        assert (missed, texts(found)) == (0, ["M"])


async def test_a_slow_reader_is_told_what_it_missed_and_holds_bounded_memory() -> None:
    feed = feed_of(chars=100)
    with feed.follow(everything) as reader:
        feed.add("a", ["x" * 9 for _ in range(1000)])
        assert sum(len(line.text) + 1 for line in reader._lines) <= 100
        _, text = await reader.next()
        assert text == "[990 lines were missed]\n" + ("x" * 9 + "\n") * 10
        feed.add("a", ["y"])
        assert await reader.next() == ("a", "y\n")
        feed.add("a", ["z" * 9 for _ in range(11)])
        missed, found = await reader.take(3)
        assert (missed, len(found)) == (1, 3)
        assert (await reader.take(100))[0] == 0


async def test_lines_come_from_any_thread() -> None:
    feed = feed_of()
    take = feed.from_threads(DAEMON)
    with feed.follow(everything) as reader:
        thread = threading.Thread(target=take, args=("info", "from elsewhere"))
        thread.start()
        with anyio.fail_after(5):
            assert await reader.next() == (DAEMON, "from elsewhere\n")
        thread.join()
    assert feed.kept(everything)[1][0].level == "info"
