"""What the tests of failing calls have a process of its own do: ``acts FOLDER ACT``.

Acts: ``token`` adds a token, ``row`` writes an intent to the ledger. Ends with 0 where the act was
acknowledged, with 3 where it was refused with one of the daemon's own errors.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mtpd.access import Scope
from mtpd.clock import SystemClock
from mtpd.errors import MtpdError
from mtpd.store.db import Database
from mtpd.store.ledger import Ledger
from mtpd.store.token_file import TokenFile
from mtpd.types import UnixEndpoint
from mtpd.units import HOST, EngineId
from tuner.types import Arm

__all__ = ["NEW", "OLD", "state"]

OLD, NEW = "old", "new"


async def row(folder: Path, name: str) -> None:
    """Write an intent."""
    async with await Database.open(folder / "state.sqlite3", SystemClock()) as db:
        await Ledger(db=db, clock=SystemClock(), boot_id="b").intend(
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


def act(folder: Path, what: str, name: str) -> None:
    """Do it."""
    if what == "token":
        token(folder, name)
    else:
        asyncio.run(row(folder, name))


def state(folder: Path, what: str) -> set[str]:
    """The names that are there now; raises where what is there cannot be used."""
    if what == "token":
        return {one.name for one in TokenFile(folder, SystemClock()).read()}
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
        act(Path(sys.argv[1]), sys.argv[2], NEW)
    except MtpdError:
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
