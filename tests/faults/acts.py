"""What the tests of failing calls have a process of its own do: ``acts FOLDER ACT [POINT]``.

Acts: ``token`` adds a token, ``row`` writes an intent to the ledger, ``snapshot`` adds a choice
to the snapshot. Ends with 0 where the act was
acknowledged, with 3 where it was refused with one of the daemon's own errors. At the fault point
it kills itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.access import Scope
from mtpd.clock import SystemClock
from mtpd.errors import MtpdError
from mtpd.faults import NoFaults
from mtpd.store.db import Database
from mtpd.store.journal import Journal
from mtpd.store.ledger import Ledger
from mtpd.store.snapshot import Good, SnapshotFile
from mtpd.store.token_file import TokenFile
from mtpd.types import Absent, UnixEndpoint
from mtpd.units import HOST, EngineId
from mtpd.views import ArmView
from tuner.types import Act, Arm, Decision

if TYPE_CHECKING:
    from mtpd.faults import Faults

__all__ = ["NEW", "OLD", "state"]

OLD, NEW = "old", "new"


class Suicide:
    """Ends the process at a fault point."""

    def __init__(self, point: str) -> None:
        self._point = point

    def hit(self, point: str) -> None:
        if point == self._point:
            os.kill(os.getpid(), signal.SIGKILL)


async def row(folder: Path, name: str, faults: Faults) -> None:
    """Write an intent, and a decision."""
    path, clock = folder / "state.sqlite3", SystemClock()
    async with await Database.open(path, clock, faults=faults) as db:
        decision = Decision(act=Act.KEEP, subject="p", arm=None, reason=name)
        await Journal(db=db, clock=clock, faults=faults).append(decision)
        await Ledger(db=db, clock=clock, boot_id="b", faults=faults).intend(
            EngineId(name),
            profile="p",
            device=HOST,
            arm=Arm(profile="p"),
            argv_digest="0" * 64,
            endpoint=UnixEndpoint("/run/x.sock"),
            fingerprint="f",
        )


def token(folder: Path, name: str) -> None:
    """Add a token."""
    TokenFile(folder, SystemClock()).add(name, scopes=frozenset({Scope.INFER}), expires=None)


def snapshot(folder: Path, name: str) -> None:
    """Add a choice."""
    file = SnapshotFile(folder)
    found = file.read()
    choice = Good(
        subject=name,
        arm=ArmView(profile=name, drafter="mtp", depth=2, p_min=0.0),
        fingerprint="f",
        reason="r",
        decision_id=1,
        at="",
    )
    file.write([*(() if isinstance(found, Absent) else found), choice])


def act(folder: Path, what: str, name: str, faults: Faults | None = None) -> None:
    """Do it."""
    if what == "token":
        token(folder, name)
    elif what == "snapshot":
        snapshot(folder, name)
    else:
        asyncio.run(row(folder, name, faults or NoFaults()))


def state(folder: Path, what: str) -> set[str]:
    """The names that are there now; raises where what is there cannot be used."""
    if what == "token":
        return {one.name for one in TokenFile(folder, SystemClock()).read()}
    if what == "snapshot":
        found = SnapshotFile(folder).read()
        assert not isinstance(found, Absent), found.reason
        return {one.subject for one in found}
    return asyncio.run(_rows(folder))


async def _rows(folder: Path) -> set[str]:
    async with await Database.open(folder / "state.sqlite3", SystemClock()) as db:
        return {
            one.engine_id
            for one in await Ledger(db=db, clock=SystemClock(), boot_id="b").open_rows()
        }


def main() -> int:
    """Act as asked."""
    try:
        act(Path(sys.argv[1]), sys.argv[2], NEW, Suicide("".join(sys.argv[3:])))
    except MtpdError:
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
