from __future__ import annotations

import threading

import anyio

from mtpd.logfeed import DAEMON, LogFeed, Source


def everything(_source: Source) -> bool:
    return True


def test_the_history_has_the_lines_of_all_sources_in_their_order() -> None:
    feed = LogFeed()
    feed.add("a", ["1", "2"])
    feed.add(DAEMON, ["3"])
    feed.add("a", ["4"])
    assert feed.history(everything) == "1\n2\n3\n4\n"
    assert feed.history(lambda source: source is DAEMON) == "3\n"
    assert feed.history(lambda source: source == "b") == ""


def test_a_flood_pushes_out_its_own_lines_only() -> None:
    feed = LogFeed(lines=3, chars=1000)
    feed.add(DAEMON, ["kept"])
    feed.add("a", [str(n) for n in range(100)])
    assert feed.history(everything) == "kept\n97\n98\n99\n"
    feed.add("a", ["x" * 999])
    assert feed.history(lambda source: source == "a") == "x" * 999 + "\n"


async def test_a_reader_gets_what_comes_after_it_began_from_its_sources() -> None:
    feed = LogFeed()
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


async def test_a_slow_reader_is_told_what_it_missed_and_holds_bounded_memory() -> None:
    feed = LogFeed(chars=100)
    with feed.follow(everything) as reader:
        feed.add("a", ["x" * 9 for _ in range(1000)])
        assert sum(len(line) + 1 for _, line in reader._lines) <= 100
        _, text = await reader.next()
        assert text == "[990 lines were missed]\n" + ("x" * 9 + "\n") * 10
        feed.add("a", ["y"])
        assert await reader.next() == ("a", "y\n")


async def test_lines_come_from_any_thread() -> None:
    feed = LogFeed()
    take = feed.from_threads(DAEMON)
    with feed.follow(everything) as reader:
        thread = threading.Thread(target=take, args=("from elsewhere",))
        thread.start()
        with anyio.fail_after(5):
            assert await reader.next() == (DAEMON, "from elsewhere\n")
        thread.join()
