from __future__ import annotations

import os

import anyio
import pytest

from mtpd.supervise.output import Output
from mtpd.supervise.spawn import Exit, ShimSpawner, not_started
from mtpd.types import Command, FailureClass

ENGINE = f"spawn-{os.getpid()}"
COMMAND = Command(argv=("/bin/true",), env={})


def quiet() -> Output:
    return Output(on_lines=lambda _: None, file=None)


def ignore(end: Exit) -> None:
    """Take no notice."""


async def test_a_spawn_off_the_loops_thread_is_refused() -> None:
    spawner = ShimSpawner()

    async def elsewhere() -> None:
        spawner.spawn(COMMAND, engine_id=ENGINE, output=quiet(), on_exit=ignore)

    with pytest.raises(RuntimeError, match="loop's thread"):
        await anyio.to_thread.run_sync(lambda: anyio.run(elsewhere))


def test_a_spawn_without_a_loop_is_refused() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        ShimSpawner().spawn(COMMAND, engine_id=ENGINE, output=quiet(), on_exit=ignore)


@pytest.mark.parametrize("code", [0, 7, 255])
async def test_exit_codes_are_right_and_signals_after_the_end_reach_nobody(code: int) -> None:
    ends: list[Exit] = []
    command = Command(argv=("/bin/sh", "-c", f"echo out; echo err >&2; exit {code}"), env={})
    output = quiet()
    child = ShimSpawner().spawn(command, engine_id=ENGINE, output=output, on_exit=ends.append)
    await child.closed()
    child.signal(9)
    assert ends == [Exit(code)]
    assert sorted(output.ring.tail()) == ["err", "out"]


def test_an_exit_is_shown_as_a_shell_would() -> None:
    assert (Exit(3).exit_code, Exit(3).signal, Exit(3).shell_code) == (3, None, 3)
    assert (Exit(-9).exit_code, Exit(-9).signal, Exit(-9).shell_code) == (None, 9, 137)


def test_only_the_shims_own_words_mean_that_the_program_never_ran() -> None:
    said = ["mtpd: cannot start /x: Permission denied"]
    cause = not_started(Exit(126), said)
    assert cause is not None
    assert (cause.failure, cause.reason) == (
        FailureClass.CONFIG,
        "cannot start /x: Permission denied",
    )
    assert not_started(Exit(126), ["permission denied"]) is None
    assert not_started(Exit(1), said) is None
