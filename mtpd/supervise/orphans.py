"""Ends what a killed daemon left behind, before anything new is started.

The parent-death signal ends engines with their daemon; this is for what it cannot
reach: helpers of an engine, engines that changed their user. A process is ended only if
it carries the engine id of an open ledger row of this boot, or one that only a daemon with this
state directory can have given it; never because of its name, its port or its pid alone.
Nothing is adopted: the log of a survivor is lost, and with it the evidence of its residency.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import anyio
import structlog

from mtpd.supervise.identity import MARKS, start_ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from mtpd.supervise.marks import Marks
    from mtpd.supervise.ports import LedgerWriter
    from mtpd.units import EngineId

__all__ = ["OpenRow", "Survivor", "end_house", "reap"]

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
    rows: Iterable[OpenRow],
    *,
    ledger: LedgerWriter,
    boot: str,
    grace_s: float = GRACE_S,
    marks: Marks = MARKS,
) -> tuple[Survivor, ...]:
    """End the processes of the open rows and close the rows; returns what could not be ended.

    Args:
        rows: The open rows of the ledger, of any boot.
        ledger: Where the ends are noted.
        boot: The present boot id.
        grace_s: Seconds after SIGTERM, and again after SIGKILL.
        marks: Tells whose a process is.
    """
    survivors: list[Survivor] = []
    for row in rows:
        left = await _end_row(row, grace_s, marks) if row.boot_id == boot else ()
        survivors.extend(Survivor(row.engine_id, pid) for pid in left)
        if not left:
            await ledger.ended(row.engine_id, None)
    return tuple(survivors)


async def end_house(
    house: str,
    *,
    spare: Collection[int] = (),
    grace_s: float = GRACE_S,
    marks: Marks = MARKS,
) -> tuple[int, ...]:
    """End all that carries an id of this daemon or of an earlier one on its state directory.

    For what no row tells of: helpers of tools and of stop commands, and the engines of a
    ledger that was lost. Only for when none of our own is to run, and with the directory's lock
    held: no other daemon can own one of them then.

    Args:
        house: How the ids begin, see ``identity.house_of``.
        spare: Processes that are left alone.
        grace_s: Seconds after SIGTERM, and again after SIGKILL.
        marks: Tells whose a process is.
    """
    spared = {os.getpid(), *spare}  # one that was started from inside an engine carries an id, too
    found = marks.all().items()
    ours = {pid: engine for pid, engine in found if pid not in spared and engine.startswith(house)}
    return await _end(ours, lambda pid: (marks.of(pid) or "").startswith(house), grace_s)


async def _end_row(row: OpenRow, grace_s: float, marks: Marks) -> tuple[int, ...]:
    def is_its(pid: int) -> bool:
        """Whether the process is the recorded one, or a helper that carries its id."""
        same_time = pid != row.pid or start_ticks(pid) == row.start_ticks
        return same_time and marks.of(pid) == row.engine_id

    its = {pid: engine for pid, engine in marks.all().items() if engine == row.engine_id}
    left = await _end(its, is_its, grace_s)
    hanging = row.pid
    if hanging is None or not marks.hangs(hanging) or start_ticks(hanging) != row.start_ticks:
        return left
    log.error("orphan.survived", engine=row.engine_id, pid=hanging)
    return (*left, hanging)


async def _end(
    marked: Mapping[int, str], is_ours: Callable[[int], bool], grace_s: float
) -> tuple[int, ...]:
    """End processes, each identified while its pidfd is held; returns what outlived it.

    Whose one is that does not end is not read again: that may hang.
    """
    with ExitStack() as stack:
        alive: dict[int, int] = {}
        for pid in marked:
            with suppress(ProcessLookupError):
                pidfd = os.pidfd_open(pid)
                stack.callback(os.close, pidfd)
                if is_ours(pid):
                    alive[pid] = pidfd
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid, pidfd in alive.items():
                log.warning("orphan.signalled", engine=marked[pid], pid=pid, signal=number.name)
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, number)
            alive = await _outlived(alive, grace_s)
        for pid in alive:
            log.error("orphan.survived", engine=marked[pid], pid=pid)
        return tuple(alive)


async def _outlived(alive: dict[int, int], grace_s: float) -> dict[int, int]:
    """Those that have not ended within the time."""
    left = dict(alive)

    async def ends(pid: int) -> None:
        await anyio.wait_readable(alive[pid])
        del left[pid]

    with anyio.move_on_after(grace_s):
        async with anyio.create_task_group() as tasks:
            for pid in alive:
                tasks.start_soon(ends, pid)
    return left
