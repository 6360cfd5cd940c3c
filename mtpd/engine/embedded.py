"""The embedded engine: `python -m mtpd.engine.embedded`, llama.cpp's own server in this process.

Covers what a process around the `xllamacpp` wheel needs to be used like llama-server:
its flags (`embedded_flags`), its log unchanged on stderr, its exit codes, and an end on
SIGTERM or SIGINT. It does not cover finding it or watching it: the supervisor does that.

How it ends, found out on the real wheel (2026.10.11549):

* While the model loads, the wheel holds the interpreter's lock, so no handler could run;
  the signals keep their default action and end the process at once.
* Destroying the server may block for ever, still with the lock, while a client holds a
  connection. So it is destroyed only when no client is connected; else the process leaves
  without it. Meanwhile the signals have their default action again: a second one always ends it.
"""

from __future__ import annotations

import importlib.util
import os
import select
import signal
import socket
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtpd.engine.embedded_args import Action, RefusedError, help_text, parse
from mtpd.engine.embedded_values import EnumValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mtpd.engine.embedded_flag import Setting
    from mtpd.engine.embedded_values import SettingValue

__all__ = ["main"]

WHEEL = "xllamacpp"
MISSING = (
    f"error: the embedded engine needs the {WHEEL} wheel, which is not installed\n"
    "hint: pip install 'mtpd[embedded]'"
)
SAID_BY_THE_LOG = "Failed to init server"
"""How the wheel's exception begins when the engine's log has already told the cause."""

LOG_FLUSH_S = 0.05
"""The engine's log has a thread of its own; this long it gets to write its last lines."""

STDERR = 2

ENDINGS = (signal.SIGTERM, signal.SIGINT)


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the engine until a signal ends it, and return the exit code."""
    if importlib.util.find_spec(WHEEL) is None:
        print(MISSING, file=sys.stderr)
        return 1
    try:
        invocation = parse(argv, environ)
    except RefusedError as error:
        print(error, file=sys.stderr)
        return 1
    match invocation.action:
        case Action.HELP:
            print(help_text())
        case Action.VERSION:
            print(_version(), file=sys.stderr)
        case Action.SERVE:
            return _serve(invocation.settings)
    return 0


def _version() -> str:
    """In llama-server's form; the wheel's version is the only one that tells builds apart."""
    import xllamacpp  # noqa: PLC0415 - takes 0.1 s, and --help must not need it

    build = xllamacpp.BUILD_INFO
    return (
        f"version: {WHEEL} {xllamacpp.__version__} "
        f"(build {build['build_number']}, commit {build['commit']})\n"
        f"built with {build['compiler']} for {build['build_target']}"
    )


def _serve(settings: Sequence[Setting]) -> int:
    import xllamacpp  # noqa: PLC0415 - takes 0.1 s, and --help must not need it

    for number in ENDINGS:
        signal.signal(number, signal.SIG_DFL)
    parameters = xllamacpp.CommonParams()
    for setting in settings:
        _assign(xllamacpp, parameters, setting)
    try:
        server = [xllamacpp.Server(parameters)]
    except RuntimeError as error:
        if not str(error).startswith(SAID_BY_THE_LOG):
            print(f"error: {error}", file=sys.stderr)
        return 1
    _wait_for_signal()
    for number in ENDINGS:
        signal.signal(number, signal.SIG_DFL)
    if _clients_connected():
        select.select([], [], [], LOG_FLUSH_S)
        os._exit(0)
    server.clear()
    return 0


def _assign(wheel: Any, parameters: Any, setting: Setting) -> None:
    *parents, name = setting.field.split(".")
    for parent in parents:
        parameters = getattr(parameters, parent)
    setattr(parameters, name, _native(wheel, setting.value))


def _native(wheel: Any, value: SettingValue) -> object:
    match value:
        case EnumValue(enum=enum, member=member):
            return getattr(wheel, enum)[member]
        case tuple():
            return [_native(wheel, item) for item in value]
        case _:
            return value


def _wait_for_signal() -> None:
    """Return when SIGTERM or SIGINT has come, whichever of the engine's threads took it."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer)
    for number in ENDINGS:
        signal.signal(number, lambda *_: None)
    select.select([reader], [], [])
    signal.set_wakeup_fd(-1)
    os.close(reader)
    os.close(writer)


def _clients_connected() -> bool:
    """Whether any socket of this process, standard streams apart, has a peer."""
    descriptors = (int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    return any(_has_peer(number) for number in descriptors if number > STDERR)


def _has_peer(descriptor: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            copy.getpeername()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))  # noqa: TID251 - a process of its own, not the daemon
