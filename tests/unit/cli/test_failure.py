"""Every way a command can end: one sentence, a hint, an exit code, a traceback only if asked."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

import anyio
import click
import pytest

from mtpd.cli.failure import exit_code_of
from mtpd.errors import (
    BinaryError,
    CalibrationError,
    ConfigError,
    ConflictError,
    DriverError,
    EngineError,
    InvalidError,
    MtpdError,
    NotFoundError,
    StateError,
    StoreError,
    UnreachableError,
    UpstreamError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

FAULT = (
    "      (this is a fault of mtpd; run again with MTPD_TRACEBACK=1 and report the traceback)\n"
)
IN_USE = StateError("it is in use", hint="end it")


def ending_with(error: BaseException) -> click.Command:
    @click.command()
    def command() -> None:
        raise error

    return command


def run(error: BaseException, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = exit_code_of(ending_with(error), [])
    out, err = capsys.readouterr()
    assert out == ""
    return code, err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MtpdError("it failed"), 1),
        (BinaryError("it failed"), 1),
        (CalibrationError("it failed"), 1),
        (DriverError("it failed"), 1),
        (EngineError("it failed", failure="crash"), 1),
        (StoreError("it failed"), 1),
        (UpstreamError("it failed"), 1),
        (NotFoundError("it failed"), 1),
        (ConflictError("it failed"), 1),
        (InvalidError("it failed"), 1),
        (UnreachableError("it failed"), 3),
        (StateError("it failed"), 78),
        (ConfigError(("it failed",)), 78),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_expected_error_is_its_sentence_and_its_exit_code(
    error: MtpdError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(error, capsys) == (code, "mtpd: it failed\n")


def test_every_error_class_is_in_the_list_above() -> None:
    known = {
        *(BinaryError, CalibrationError, ConfigError, ConflictError, DriverError, EngineError),
        *(InvalidError, NotFoundError, StateError, StoreError, UnreachableError, UpstreamError),
    }
    ours = {c for c in MtpdError.__subclasses__() if c.__module__ == "mtpd.errors"}
    assert ours == known


def test_a_hint_follows_in_parentheses(capsys: pytest.CaptureFixture[str]) -> None:
    error = BinaryError("there is no llama-server", hint="pip install 'mtpd[embedded]'")
    assert run(error, capsys) == (
        1,
        "mtpd: there is no llama-server\n      (pip install 'mtpd[embedded]')\n",
    )


def test_every_problem_of_a_configuration_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    error = ConfigError(("mtpd.toml:3: a: wrong", "mtpd.toml:8: b: wrong too"), hint="see the docs")
    assert run(error, capsys) == (
        78,
        "mtpd: mtpd.toml:3: a: wrong\nmtpd: mtpd.toml:8: b: wrong too\n      (see the docs)\n",
    )


def test_a_sentence_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    sentence = "[vulkan] 5% left: %s {x}"
    assert run(MtpdError(sentence), capsys) == (1, f"mtpd: {sentence}\n")


@pytest.mark.parametrize(
    "error",
    [
        ExceptionGroup("tasks", [IN_USE]),
        ExceptionGroup("tasks", [ExceptionGroup("tasks", [IN_USE])]),
        ExceptionGroup("tasks", [ValueError("a follow-up"), IN_USE]),
        BaseExceptionGroup("tasks", [KeyboardInterrupt(), IN_USE]),
    ],
    ids=["one", "nested", "beside another", "beside an interrupt"],
)
def test_a_group_of_tasks_shows_the_error_inside(
    error: BaseExceptionGroup[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(error, capsys) == (78, "mtpd: it is in use\n      (end it)\n")


def test_a_real_task_group_shows_the_error_inside(capsys: pytest.CaptureFixture[str]) -> None:
    async def fail() -> None:
        raise UnreachableError("the daemon does not answer")

    async def work() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)

    @click.command()
    def command() -> None:
        anyio.run(work)

    assert exit_code_of(command, []) == 3
    assert capsys.readouterr().err == "mtpd: the daemon does not answer\n"


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        click.Abort(),
        BaseExceptionGroup("tasks", [KeyboardInterrupt()]),
    ],
    ids=["signal", "abort", "in a group"],
)
def test_an_interrupt_is_no_traceback(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = run(error, capsys)
    assert code == 1
    assert text.strip() == "interrupted"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("no such thing"), "mtpd: unexpected ValueError: no such thing\n"),
        (
            ExceptionGroup("tasks", [ValueError("no such thing")]),
            "mtpd: unexpected ExceptionGroup: tasks (1 sub-exception)\n",
        ),
    ],
    ids=["plain", "group"],
)
def test_an_unexpected_error_says_that_it_is_a_fault(
    error: Exception,
    shown: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MTPD_TRACEBACK", raising=False)
    assert run(error, capsys) == (1, shown + FAULT)


def test_a_traceback_is_printed_when_it_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MTPD_TRACEBACK", "1")
    code, text = run(ValueError("no such thing"), capsys)
    assert code == 1
    assert text.startswith("mtpd: unexpected ValueError: no such thing\n")
    assert "Traceback (most recent call last):" in text
    assert text.endswith("ValueError: no such thing\n")


def test_an_expected_error_has_no_traceback_even_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MTPD_TRACEBACK", "1")
    assert run(NotFoundError("there is no model"), capsys) == (1, "mtpd: there is no model\n")


@click.command()
@click.option("--port", type=click.IntRange(0, 65535))
def _takes_a_port(port: int | None) -> None:
    click.echo(f"port {port}")


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (["--port", "70000"], "Invalid value for '--port'"),
        (["--prot", "1"], "No such option"),
        (["more"], "unexpected extra argument"),
    ],
)
def test_a_usage_error_is_clicks_own_text_and_exit_code_two(
    args: Sequence[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(_takes_a_port, args) == 2
    text = capsys.readouterr().err
    assert "Usage:" in text
    assert shown in text


def test_a_command_that_ends_well_is_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(_takes_a_port, ["--port", "8080"]) == 0
    assert exit_code_of(_takes_a_port, ["--help"]) == 0
    assert capsys.readouterr().out.startswith("port 8080\n")


def test_a_command_may_name_its_exit_code() -> None:
    @click.command()
    @click.pass_context
    def leaves(context: click.Context) -> None:
        context.exit(4)

    assert exit_code_of(leaves, []) == 4


async def test_a_reader_that_left_ends_the_command_without_a_word() -> None:
    program = (
        "import sys, click\n"
        "from mtpd.cli.failure import exit_code_of\n"
        "@click.command()\n"
        "def pour():\n"
        "    for _ in range(100000):\n"
        "        click.echo('x' * 100)\n"
        "sys.exit(exit_code_of(pour, []))\n"
    )
    reader, writer = os.pipe()
    with anyio.fail_after(30):
        async with await anyio.open_process(
            [sys.executable, "-c", program], stdout=writer
        ) as process:
            os.close(writer)
            assert await anyio.to_thread.run_sync(os.read, reader, 100)
            os.close(reader)
            assert process.stderr is not None
            said = b"".join([chunk async for chunk in process.stderr])
            code = await process.wait()
    assert (code, said) == (1, b"")


@pytest.mark.parametrize(("said", "code"), [(1, 1), (3, 3), (None, 0), ("text", 1)])
def test_an_exit_inside_a_task_group_is_an_exit(
    said: int | str | None, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    group = BaseExceptionGroup("tasks", [BaseExceptionGroup("inner", [SystemExit(said)])])
    assert run(group, capsys) == (code, "")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_no_fault_of_ours(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    why = os.strerror(number)
    for error, where in (
        (OSError(number, why), ""),
        (OSError(number, why, "/srv/report"), " for /srv/report"),
        (ExceptionGroup("tasks", [OSError(number, why)]), ""),
    ):
        shown = f"mtpd: there is no space left{where}: {why}\n      (free disk space)\n"
        assert run(error, capsys) == (1, shown)


def test_another_error_of_the_system_in_a_group_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MTPD_TRACEBACK", raising=False)
    code, text = run(ExceptionGroup("tasks", [OSError(errno.EIO, "i/o")]), capsys)
    assert (code, text) == (1, "mtpd: unexpected OSError: [Errno 5] i/o\n" + FAULT)


def test_a_program_signs_with_its_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(ending_with(IN_USE), [], name="mtpctl") == 78
    assert capsys.readouterr().err == "mtpctl: it is in use\n        (end it)\n"
