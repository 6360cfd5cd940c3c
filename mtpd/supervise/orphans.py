"""Ends what a killed daemon left behind, before anything new is started.

The parent-death signal ends engines with their daemon; this is for what it cannot
reach: helpers of an engine, engines that changed their user. A process is ended only if
it carries the engine id of an open ledger row of this boot, never because of its name,
its port or its pid alone. Nothing is adopted: the log of a survivor is lost, and with
it the evidence of its residency.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import anyio
import structlog

from mtpd.supervise.identity import engine_of, pids_of, start_ticks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mtpd.supervise.ports import LedgerWriter
    from mtpd.units import EngineId

__all__ = ["OpenRow", "Survivor", "reap"]

log = structlog.get_logger()

GRACE_S = 5.0


class OpenRow(Protocol):
    """A ledger row whose process has not been seen to end."""

    @property
    def engine_id(self) -> EngineId:
        """The engine start."""

    @property
    def boot_id(self) -> str:
        """The boot it was started in."""

    @property
    def pid(self) -> int | None:
        """The process, None where the daemon died before it knew."""

    @property
    def start_ticks(self) -> int | None:
        """When the process started."""


@dataclass(frozen=True, slots=True)
class Survivor:
    """A process that outlived SIGKILL; its device must not be used."""

    engine_id: EngineId
    pid: int


async def reap(
    rows: Iterable[OpenRow], *, ledger: LedgerWriter, boot: str, grace_s: float = GRACE_S
) -> tuple[Survivor, ...]:
    """End the processes of the open rows and close the rows; returns what could not be ended.

    Args:
        rows: The open rows of the ledger, of any boot.
        ledger: Where the ends are noted.
        boot: The present boot id.
        grace_s: Seconds after SIGTERM, and again after SIGKILL.
    """
    survivors: list[Survivor] = []
    for row in rows:
        left = await _end(row, grace_s) if row.boot_id == boot else ()
        for pid in left:
            log.error("orphan.survived", engine=row.engine_id, pid=pid)
            survivors.append(Survivor(row.engine_id, pid))
        if not left:
            await ledger.ended(row.engine_id, None)
    return tuple(survivors)


async def _end(row: OpenRow, grace_s: float) -> tuple[int, ...]:
    with ExitStack() as stack:
        alive = _open(row, stack)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid, pidfd in alive.items():
                log.warning("orphan.signalled", engine=row.engine_id, pid=pid, signal=number.name)
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, number)
            alive = await _outlived(alive, grace_s)
    return tuple(alive)


def _open(row: OpenRow, stack: ExitStack) -> dict[int, int]:
    """Pidfds of the row's processes; the identity is read after the pidfd holds the process."""
    found: dict[int, int] = {}
    for pid in pids_of(row.engine_id):
        with suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            stack.callback(os.close, pidfd)
            if _is(row, pid):
                found[pid] = pidfd
    return found


def _is(row: OpenRow, pid: int) -> bool:
    """Whether the process is the recorded one, or a helper that carries its id."""
    same_time = pid != row.pid or start_ticks(pid) == row.start_ticks
    return same_time and engine_of(pid) == row.engine_id


async def _outlived(alive: dict[int, int], grace_s: float) -> dict[int, int]:
    """Those that have not ended within the time."""
    left = dict(alive)
    with anyio.move_on_after(grace_s):
        for pid, pidfd in alive.items():
            await anyio.wait_readable(pidfd)
            del left[pid]
    return left
