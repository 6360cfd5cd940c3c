"""kill -9 in the middle of a write loop: what was acknowledged is there."""

from __future__ import annotations

import random
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from mtpd.store.db import Database
from mtpd.store.journal import Journal
from tests.fakes.clock import FakeClock

WRITER = """
import asyncio, sys
from pathlib import Path
from mtpd.clock import SystemClock
from mtpd.store.db import Database
from mtpd.store.journal import Journal
from tuner.types import Act, Decision

async def main():
    db = await Database.open(Path(sys.argv[1]), SystemClock())
    journal = Journal(db=db, clock=SystemClock())
    while True:
        view = await journal.append(
            Decision(act=Act.KEEP, subject="tiny", arm=None, reason="nothing changed")
        )
        print("ack", view.id, flush=True)

asyncio.run(main())
"""


async def _acknowledged_until_killed(path: Path, *, after: int) -> list[int]:
    """Start the writer, kill it some time after an acknowledgement, return all of them."""
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", WRITER, str(path)]
    text = b""
    async with await anyio.open_process(command, cwd=root, stderr=None) as process:
        assert process.stdout is not None
        with anyio.fail_after(30):
            while text.count(b"ack ") < after:
                text += await process.stdout.receive()
            process.kill()
            async for chunk in process.stdout:
                text += chunk
    complete = text[: text.rfind(b"\n") + 1].decode().splitlines()
    return [int(line.removeprefix("ack ")) for line in complete if line.startswith("ack ")]


@pytest.mark.slow
async def test_no_acknowledged_row_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite3"
    rng = random.Random(7)  # noqa: S311 - instants of a test
    acknowledged: list[int] = []

    for _ in range(6):
        acknowledged += await _acknowledged_until_killed(path, after=rng.randrange(1, 60))

        async with await Database.open(path, FakeClock()) as db:
            assert db.quarantined is None
            stored = {view.id for view in await Journal(db=db, clock=FakeClock()).list()}
        with closing(sqlite3.connect(path)) as conn:
            assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert set(acknowledged) <= stored
        # At most the row in flight at each kill was stored without being acknowledged.
        assert len(stored) <= len(acknowledged) + 6
    assert len(acknowledged) == len(set(acknowledged)) >= 6
