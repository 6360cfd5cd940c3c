"""One tool as a process: its text as it comes, how it ends, and that it is gone afterwards."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.errors import EngineError
from mtpd.supervise.spawn import ShimSpawner
from mtpd.supervise.tool_run import KEPT_CHARS, ToolRunner
from mtpd.types import Command, FailureClass

if TYPE_CHECKING:
    from collections.abc import Callable

ENV = {"PATH": "/usr/bin:/bin"}


def nothing(_texts: tuple[str, ...]) -> None:
    """Nobody listens."""


async def ran(
    script: str,
    *,
    quiet_s: float = 60.0,
    printed: int = 1024 * 1024,
    on_text: Callable[[tuple[str, ...]], None] = nothing,
) -> tuple[str, ...]:
    command = Command(argv=("/bin/sh", "-c", script), env=ENV)
    return await ToolRunner(ShimSpawner(), quiet_s=quiet_s, printed=printed).run(
        command, name="llama-x", on_text=on_text
    )


async def test_the_text_of_both_pipes_is_returned_whole() -> None:
    texts = await ran("printf '[1]5.1,'; printf 'a log\\n' >&2; printf '[2]5.2,'")
    assert sorted(texts) == ["[1]5.1,[2]5.2,", "a log\n"]


async def test_text_is_told_before_the_line_ends() -> None:
    heard: list[tuple[str, ...]] = []
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:

            def on_text(texts: tuple[str, ...]) -> None:
                heard.append(texts)
                tasks.cancel_scope.cancel()

            await ran("printf '[1]5.1,'; sleep 1000", on_text=on_text)
    assert heard == [("[1]5.1,",)]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo one; echo 'error: no such file' >&2; exit 3", "exit code 3: error: no such file"),
        ("echo one; echo two; exit 1", "exit code 1: one | two"),
        ("exit 1", "exit code 1 and printed nothing"),
        ("kill -KILL $$", "signal 9 and printed nothing"),
    ],
)
async def test_a_bad_end_is_told_with_the_last_words(script: str, said: str) -> None:
    with pytest.raises(EngineError) as failed:
        await ran(script)
    assert str(failed.value) == f"llama-x ended with {said}"
    assert failed.value.failure == FailureClass.CRASH


async def test_a_program_that_cannot_run_is_no_crash() -> None:
    command = Command(argv=("/nowhere/llama-x",), env=ENV)
    with pytest.raises(EngineError, match="llama-x did not run: ") as failed:
        await ToolRunner(ShimSpawner()).run(command, name="llama-x", on_text=nothing)
    assert failed.value.failure == FailureClass.CONFIG


async def test_a_tool_that_says_nothing_any_more_is_ended() -> None:
    pids: list[int] = []

    def on_text(texts: tuple[str, ...]) -> None:
        pids.append(int(texts[0]))

    with pytest.raises(EngineError, match=r"printed nothing for 0\.5 s and was ended") as failed:
        await ran("echo $$; sleep 1000", quiet_s=0.5, on_text=on_text)
    assert failed.value.failure == FailureClass.HANG
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_who_gives_up_leaves_no_process_behind() -> None:
    pids: list[int] = []
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:

            def on_text(texts: tuple[str, ...]) -> None:
                pids.append(int(texts[0]))
                tasks.cancel_scope.cancel()

            await ran("echo $$; sleep 1000", on_text=on_text)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


async def test_a_tool_that_prints_without_end_is_ended() -> None:
    with anyio.fail_after(60):
        with pytest.raises(EngineError, match="printed more than 1000 bytes and was") as failed:
            await ran("while :; do echo garbage; done", printed=1000)
    assert failed.value.failure == FailureClass.HANG


async def test_what_is_not_kept_is_not_told() -> None:
    heard: list[int] = []
    size = KEPT_CHARS + 1024 * 1024
    (text,) = await ran(
        f"head -c {size} /dev/zero | tr '\\0' x",
        printed=size,
        on_text=lambda texts: heard.append(len(texts[0])),
    )
    assert len(text) == KEPT_CHARS
    assert heard == sorted(set(heard)), "told again without anything new"
