"""Asks a process to end: by signals, or by a command of its own before them.

A command takes the place of the first SIGTERM (``docker stop NAME``: the process is only
the client of what really runs). Where it fails, or is not enough, the signals follow. Also
an engine that is killed at once gets its command run, or its container would stay.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import structlog

from mtpd.supervise.output import Output
from mtpd.units import EngineId

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from mtpd.supervise.life import Life
    from mtpd.supervise.ports import Child, Spawner
    from mtpd.supervise.spawn import Exit
    from mtpd.types import Command

__all__ = ["PID", "Stopper"]

log = structlog.get_logger()

NUMBERS = {"TERM": signal.SIGTERM, "KILL": signal.SIGKILL}

PID = "${PID}"
"""What stands for the process in a stop command."""

EXTRA_S = 5.0
"""How much longer than the process a stop command may take: it waits for that process."""


class Stopper:
    """Carries out the signals of the stop ladder.

    Args:
        spawner: Creates the processes of stop commands.
    """

    def __init__(self, spawner: Spawner) -> None:
        self._spawner = spawner

    def signal(self, life: Life, name: str, tasks: TaskGroup) -> None:
        """Ask a process to end, or kill it."""
        command = life.plan.stop_command
        if command is not None and not life.stop_asked:
            life.stop_asked = True
            tasks.start_soon(self._run, life, _of_process(command, life.pid))
            if name == "TERM":
                return
        life.kill(NUMBERS[name])

    async def _run(self, life: Life, command: Command) -> None:
        """Run a stop command to its end; where it fails the process gets its SIGTERM."""
        ends: list[Exit] = []
        output = Output(on_lines=lambda _lines: None, file=None)
        try:
            child = self._spawner.spawn(
                command, engine_id=_of_command(life), output=output, on_exit=ends.append
            )
        except (OSError, ValueError) as error:
            failed = f"cannot be started: {error}"
        else:
            await _closed(child, life.plan.stop_timeout_s + EXTRA_S)
            code = ends[0].shell_code if ends else None
            said = " ".join(output.ring.tail(1))
            failed = "" if code == 0 else f"ended with {code}: {said}"
        if failed:
            log.warning("engine.stop_command_failed", engine=life.engine_id, error=failed)
            life.kill(signal.SIGTERM)


async def _closed(child: Child, within_s: float) -> None:
    """Wait for the end of a process, and bring it about where it takes too long."""
    try:
        with anyio.move_on_after(within_s):
            await child.closed()
            return
    finally:
        child.signal(signal.SIGKILL)
    await child.closed()


def _of_command(life: Life) -> EngineId:
    """What a stop command and its children carry: they may outlive the engine by a moment."""
    return EngineId(f"{life.engine_id}-stop")


def _of_process(command: Command, pid: int) -> Command:
    return replace(command, argv=tuple(word.replace(PID, str(pid)) for word in command.argv))
