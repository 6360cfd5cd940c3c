"""What was acknowledged is there after a kill -9, and after a power cut.

The power cut: the database lies on a file that is mounted as a disk. At some instant the writer is
stopped, and the file, which has what the disk would have, is copied; the copy is mounted, which
replays its journal. That models writes that were not flushed, not sectors that are torn.
``make test`` does a part; ``make faults`` sets MTPD_ENDURANCE and does all.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from mtpd.store.db import Database
from mtpd.store.journal import Journal
from mtpd.store.ledger import Ledger
from mtpd.views import ArmView
from tests.fakes.clock import FakeClock
from tests.fakes.ledger_writer import FINGERPRINT, SUBJECT, arm_of, engine_of

if TYPE_CHECKING:
    from anyio.abc import Process

ROOT = Path(__file__).parents[2]
ALL = os.environ.get("MTPD_ENDURANCE") == "1"
KILLS = 200 if ALL else 5
POWER_CUTS = 50 if ALL else 3
SEED = 20261130
IMAGE_BYTES = 24 * 1024 * 1024
MEMORY = Path("/dev/shm")  # noqa: S108 - a file system, not a name in it
"""Where an image lies: what reaches the image must not wait for the machine's own disk."""

ON_A_DISK = 'mount -o loop "$1" "$2"; shift 2; exec "$@"'
OUT_OF_A_DISK = 'mount -o loop "$1" "$2"; cp "$2"/db* "$3"/'


async def _acknowledged(process: Process, *, after: int, number: signal.Signals) -> list[int]:
    """Send a signal some time after an acknowledgement; everything that was acknowledged."""
    assert process.stdout is not None
    text = b""
    with anyio.fail_after(120):
        while text.count(b"ack ") < after:
            text += await process.stdout.receive()
        process.send_signal(number)
        if number is signal.SIGKILL:
            async for chunk in process.stdout:
                text += chunk
        else:
            with anyio.move_on_after(0.2):  # what is in the pipe; nobody adds to it any more
                while True:
                    text += await process.stdout.receive()
    complete = text[: text.rfind(b"\n") + 1].decode().splitlines()
    return [int(line.removeprefix("ack ")) for line in complete if line.startswith("ack ")]


async def _all_there(path: Path, acknowledged: list[int]) -> int:
    """Every acknowledged round is whole, and the choice is the latest one; how many there are."""
    async with await Database.open(path, FakeClock()) as db:
        assert db.quarantined is None
        journal = Journal(db=db, clock=FakeClock())
        stored = {view.id: view for view in await journal.list()}
        ledger = Ledger(db=db, clock=FakeClock(), boot_id="b")
        engines = {one.engine_id for one in await ledger.open_rows()}
        chosen = await journal.latest_choice(SUBJECT, FINGERPRINT)
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert set(acknowledged) <= set(stored)
    assert {engine_of(number) for number in acknowledged} <= engines
    assert all(view.measurement_ids for view in stored.values())
    assert chosen is not None
    assert chosen.id == max(stored)
    assert chosen.arm == ArmView.of(arm_of(chosen.id))
    return len(stored)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_no_acknowledged_row_is_lost_by_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "db"
    rng = random.Random(SEED)  # noqa: S311 - instants of a test
    acknowledged: list[int] = []
    for trial in range(KILLS):
        command = [sys.executable, "-m", "tests.fakes.ledger_writer", str(path)]
        async with await anyio.open_process(command, cwd=ROOT, stderr=None) as process:
            after = rng.randrange(1, 30)
            acknowledged += await _acknowledged(process, after=after, number=signal.SIGKILL)
        stored = await _all_there(path, acknowledged)
        # At most the round in flight at each kill was stored without being acknowledged.
        assert stored <= len(acknowledged) + trial + 1, f"SEED={SEED}"
    assert len(acknowledged) == len(set(acknowledged)) >= KILLS


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_no_acknowledged_row_is_lost_by_a_power_cut() -> None:
    rng = random.Random(SEED)  # noqa: S311 - instants of a test
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="mtpd-t-") as name:
        folder = Path(name)
        for trial in range(POWER_CUTS):
            place = folder / str(trial)
            (place / "disk").mkdir(parents=True)
            acknowledged = await _cut(place, after=rng.randrange(1, 120))
            assert acknowledged
            await _all_there(place / "out" / "db", acknowledged)
            shutil.rmtree(place)


async def _cut(place: Path, *, after: int) -> list[int]:
    """Write on a disk of its own until the power is cut; what the disk has is in ``out``."""
    image, copy, disk, out = (place / name for name in ("image", "copy", "disk", "out"))
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    await anyio.run_process(["mkfs.ext4", "-q", str(image)])
    writer = [sys.executable, "-m", "tests.fakes.ledger_writer", str(disk / "db")]
    command = ["unshare", "--mount", "sh", "-ec", ON_A_DISK, "sh"]
    process = await anyio.open_process(
        [*command, str(image), str(disk), *writer], cwd=ROOT, stderr=None
    )
    try:
        acknowledged = await _acknowledged(process, after=after, number=signal.SIGSTOP)
        shutil.copyfile(image, copy)
    finally:
        process.kill()
        await process.aclose()
    out.mkdir()
    script = ["unshare", "--mount", "sh", "-ec", OUT_OF_A_DISK, "sh"]
    await anyio.run_process([*script, str(copy), str(disk), str(out)], stderr=subprocess.STDOUT)
    return acknowledged
