"""Creates engine processes and sees them end.

The child is reaped here, in the loop's thread, and not by asyncio: between its end and
its reaping it is a zombie that keeps pid and group id from being reused, so no signal
can ever reach a stranger; the exit status cannot be stolen; and no thread is needed. The
end is seen by pidfd, which a grandchild that holds the pipes does not delay.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess  # noqa: TID251 - this is the one module that starts engines
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import anyio

from mtpd.supervise import oom, shim
from mtpd.supervise.identity import VARIABLE, start_ticks
from mtpd.supervise.remains import Remains
from mtpd.supervise.states import Cause
from mtpd.types import FailureClass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mtpd.supervise.cgroups import Cgroup, Cgroups
    from mtpd.types import Command

__all__ = ["Exit", "Pipes", "ShimChild", "ShimSpawner", "not_started"]

READ_BYTES = 16 * 1024
"""One read per turn of the loop: a flood must not starve the rest of the daemon."""
DRAIN_S = 1.0
"""How long the pipes of an ended process stay open for what its children still print."""
OOM_SCORE = 500
NOT_STARTED = (126, 127)


class Pipes(Protocol):
    """Takes what a process prints; ``mtpd.supervise.output`` is an engine's."""

    def feed(self, pipe: int, data: bytes, /) -> None:
        """Take what was read of a pipe."""

    def end(self, pipe: int, /) -> None:
        """Take the end of a pipe."""

    def close(self, done: Callable[[], None], /) -> None:
        """The process has ended and its pipes are closed; ``done`` once all is put away."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended.

    Attributes:
        code: The exit code, or minus the signal.
        oom_kills: Processes that the kernel killed for want of memory while it lived, its own
            among them or not; None where nobody counts.
    """

    code: int
    oom_kills: int | None = field(default=None, compare=False)

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None if a signal ended it."""
        return self.code if self.code >= 0 else None

    @property
    def signal(self) -> int | None:
        """The signal that ended it, or None."""
        return -self.code if self.code < 0 else None

    @property
    def shell_code(self) -> int:
        """What a shell would show: the exit code, or 128 + signal."""
        return self.code if self.code >= 0 else 128 - self.code


def not_started(end: Exit, lines: Sequence[str]) -> Cause | None:
    """The cause where the program itself never ran, else None."""
    said = [line for line in lines if line.startswith(shim.MARK)]
    if end.code not in NOT_STARTED or not said:
        return None
    return Cause(
        failure=FailureClass.CONFIG,
        reason=said[-1].removeprefix("mtpd: "),
        hint="check that engine.binary names a llama-server built for this machine",
        exit_code=end.code,
    )


class ShimSpawner:
    """Starts engines through the exec shim, in a session of their own.

    The kernel kills an engine when the thread that started it ends, so all starts must
    come from the loop's thread: the one in which this object is made.

    Args:
        groups: Makes a control group for each process, None where we may have none.
        python: What runs the shim.
        oom_score: How much rather than others the kernel shall kill it for want of memory.
    """

    def __init__(
        self,
        *,
        groups: Cgroups | None = None,
        python: str = sys.executable,
        oom_score: int = OOM_SCORE,
    ) -> None:
        self._groups = groups
        self._prefix = (python, "-I", "-S", str(Path(shim.__file__)))
        self._oom_score = str(oom_score)
        self._thread = threading.get_ident()

    def spawn(
        self,
        command: Command,
        *,
        engine_id: str,
        output: Pipes,
        on_exit: Callable[[Exit], None],
    ) -> ShimChild:
        """Create the process; raises OSError where not even the shim can be started.

        When it ends, all that carries the same ``engine_id`` ends with it.
        """
        asyncio.get_running_loop()  # raises where there is none
        if threading.get_ident() != self._thread:
            msg = "engines are started from the loop's thread only: they die with their thread"
            raise RuntimeError(msg)
        group = self._groups.make(engine_id) if self._groups else None
        joins = str(group.path / "cgroup.procs") if group else ""
        try:
            process = subprocess.Popen(  # noqa: S603 - argv comes from the typed command builder
                [*self._prefix, str(os.getpid()), self._oom_score, joins, *command.argv],
                env={**command.env, VARIABLE: engine_id},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
            return ShimChild(
                process, engine_id=engine_id, group=group, output=output, on_exit=on_exit
            )
        except (OSError, ValueError):
            if group is not None:
                group.remove()
            raise


class ShimChild:
    """A process of ours; it leads its own session and group."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *,
        engine_id: str,
        group: Cgroup | None,
        output: Pipes,
        on_exit: Callable[[Exit], None],
    ) -> None:
        self._pidfd = _pidfd_of(process)
        self._process, self._output, self._on_exit = process, output, on_exit
        self._engine_id, self._group, self._oom_kills = engine_id, group, oom.kills()
        self._loop = asyncio.get_running_loop()
        self._closed = anyio.Event()
        self._ended = self._told = self._closing = False
        self.pid = process.pid
        self.start_ticks = start_ticks(process.pid) or 0
        self._pipes: dict[int, IO[bytes]] = {}
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._pipes[pipe.fileno()] = pipe
                self._loop.add_reader(pipe.fileno(), self._read, pipe.fileno())
        self._loop.add_reader(self._pidfd, self._reap)

    def signal(self, number: int) -> None:
        """Signal the group; does nothing once the process has been reaped."""
        if not self._ended:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def catch_up(self) -> None:
        """Read all that is in the pipes now; what a flood adds meanwhile has to wait."""
        for fd in list(self._pipes):
            left = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
            while left > 0 and (count := self._read(fd)):
                left -= count

    async def closed(self) -> None:
        """Wait until the process has ended and its pipes are closed."""
        await self._closed.wait()

    def _read(self, fd: int) -> int:
        """Read once; returns the number of bytes, 0 at the end or when there are none."""
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return 0
        if data:
            self._output.feed(fd, data)
        else:
            self._close_pipe(fd)
        return len(data)

    def _reap(self) -> None:
        """Take the exit status, after ending what is left of the group, and then the rest."""
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._ended = True
        code = self._process.wait()  # it is a zombie: this does not wait
        end = Exit(code, oom.kills_since(self._oom_kills))
        self.catch_up()
        if self._pipes:
            self._loop.call_later(DRAIN_S, self._close_pipes)
        Remains(self._engine_id, group=self._group, done=lambda: self._tell(end)).end()

    def _tell(self, end: Exit) -> None:
        """Nothing of it is left."""
        self._told = True
        self._on_exit(end)
        self._close_if_done()

    def _close_pipes(self) -> None:
        for fd in list(self._pipes):
            self._close_pipe(fd)

    def _close_pipe(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        self._pipes.pop(fd).close()
        self._output.end(fd)
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._told and not self._pipes and not self._closing:
            self._closing = True
            self._output.close(self._closed.set)


def _pidfd_of(process: subprocess.Popen[bytes]) -> int:
    """Through which its end is seen; a process without one is ended, as nobody would know it."""
    try:
        return os.pidfd_open(process.pid)
    except OSError:
        os.killpg(process.pid, signal.SIGKILL)
        with process:  # waits for its end and closes the pipes
            raise
