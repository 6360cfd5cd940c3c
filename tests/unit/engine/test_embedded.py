from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mtpd.engine import embedded
from mtpd.engine.embedded_args import parse
from mtpd.engine.embedded_flags import FLAGS
from mtpd.engine.embedded_values import SPEC_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mtpd.engine.embedded_flag import Flag

SAMPLES = {
    "[none|mean|cls|last|rank]": "mean",
    "TYPE": "q8_0",
    "[on|off]": "off",
    "[on|off|auto]": "on",
    "none": "none",
    "P": "0.5",
    "P0,P1,...": "0.9,0.5",
    "MiB0,MiB1,...": "256",
    ",".join(SPEC_TYPES): "draft-mtp",
}


def sample(flag: Flag) -> tuple[str, ...]:
    return () if flag.read is None else (SAMPLES.get(flag.hint, "7"),)


def field(parameters: Any, path: str) -> Any:
    for name in path.split("."):
        parameters = getattr(parameters, name)
    return parameters


def plain(value: Any) -> Any:
    """The wheel holds names in a set and rates as 32-bit numbers."""
    return list(value) if isinstance(value, set) else value


@pytest.mark.real_engine
@pytest.mark.parametrize("flag", FLAGS[2:], ids=lambda flag: flag.names[-1])
def test_the_wheel_takes_what_the_table_assigns(flag: Flag) -> None:
    wheel = importlib.import_module("xllamacpp")
    parameters = wheel.CommonParams()
    invocation = parse(("-m", "x", "-md", "y", flag.names[-1], *sample(flag)), {})

    for setting in invocation.settings:
        embedded._assign(wheel, parameters, setting)

    assigned = {s.field: embedded._native(wheel, s.value) for s in invocation.settings}
    for path in flag.fields:
        assert plain(field(parameters, path)) == pytest.approx(assigned[path])


def test_help_goes_to_stdout_and_needs_no_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert embedded.main(["--help"], {}) == 0

    out, err = capsys.readouterr()
    assert "--spec-draft-n-max N" in out
    assert err == ""


def test_a_refusal_goes_to_stderr_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert embedded.main(["--no-such-flag"], {}) == 1

    assert capsys.readouterr().err.startswith("error: invalid argument: --no-such-flag")


@pytest.mark.real_engine
def test_the_version_names_the_wheel_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert embedded.main(["--version"], {}) == 0

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("version: xllamacpp 20")


@pytest.fixture
def without_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the extra: nothing on the path holds the wheel."""
    monkeypatch.delitem(sys.modules, embedded.WHEEL, raising=False)
    monkeypatch.setattr(sys, "path", [])
    importlib.invalidate_caches()


@pytest.mark.usefixtures("without_the_wheel")
def test_without_the_wheel_one_sentence_says_how_to_install_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert embedded.main(["--help"], {}) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "error: the embedded engine needs the xllamacpp wheel, which is not installed",
        "hint: pip install 'mtpd[embedded]'",
    ]


def test_only_a_connected_socket_has_a_peer(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(str(tmp_path / "s.sock"))
        listener.listen()
        assert not embedded._has_peer(listener.fileno())

        client.connect(str(tmp_path / "s.sock"))
        served, _ = listener.accept()
        with served:
            assert embedded._has_peer(served.fileno())
        assert embedded._has_peer(client.fileno())
        assert embedded._clients_connected()


def test_what_is_no_socket_or_closed_has_no_peer() -> None:
    reader, writer = os.pipe()
    assert not embedded._has_peer(reader)
    os.close(reader)
    os.close(writer)
    assert not embedded._has_peer(reader)


@pytest.fixture
def endings() -> Iterator[None]:
    before = [(number, signal.getsignal(number)) for number in embedded.ENDINGS]
    yield
    for number, handler in before:
        signal.signal(number, handler)


@pytest.mark.usefixtures("endings")
@pytest.mark.parametrize("number", embedded.ENDINGS)
def test_a_signal_ends_the_wait(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)
    ticker = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), number))
    signal.setitimer(signal.ITIMER_REAL, 0.05)

    embedded._wait_for_signal()

    signal.signal(signal.SIGALRM, ticker)


class Refusing:
    """A wheel whose server cannot be made."""

    def __init__(self, why: str) -> None:
        self.why = why

    def CommonParams(self) -> SimpleNamespace:  # noqa: N802 - the wheel's name
        return SimpleNamespace()

    def Server(self, parameters: object) -> None:  # noqa: N802 - the wheel's name
        raise RuntimeError(self.why)


@pytest.mark.usefixtures("endings")
@pytest.mark.parametrize(
    ("why", "printed"),
    [
        ("Failed to init server, please check the input params.", ""),
        ("out of everything", "error: out of everything\n"),
    ],
)
def test_a_failed_start_ends_with_1_and_says_only_what_the_log_does_not(
    why: str, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, embedded.WHEEL, Refusing(why))

    assert embedded._serve(()) == 1

    assert capsys.readouterr().err == printed
