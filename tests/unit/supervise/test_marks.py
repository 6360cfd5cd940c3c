"""A process whose memory the kernel keeps locked hangs whoever reads its environment."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import structlog
from anyio import to_thread

from mtpd.supervise.identity import boot_id
from mtpd.supervise.marks import Marks
from mtpd.supervise.orphans import Survivor, end_house, reap
from tests.fakes.supervision import MemoryLedger
from tests.unit.supervise.test_orphans import DEAF, KIND, ORPHAN, process, row_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WITHIN_S = 10.0


def marked(proc: Path, pid: int, engine: str) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "environ").write_bytes(b"A=b\0MTPD_INSTANCE=" + engine.encode() + b"\0")


@contextmanager
def hanging(proc: Path, pid: int) -> Iterator[None]:
    """A process of which no read returns, as opening a pipe that nobody writes to does not."""
    (proc / str(pid)).mkdir()
    pipe = proc / str(pid) / "environ"
    os.mkfifo(pipe)
    try:
        yield
    finally:
        os.close(os.open(pipe, os.O_RDWR))


async def test_it_is_passed_over_and_all_others_are_read(tmp_path: Path) -> None:
    marked(tmp_path, 1, "one")
    marked(tmp_path, 3, "three")
    marks = Marks(tmp_path)
    with hanging(tmp_path, 2), hanging(tmp_path, 4):
        with structlog.testing.capture_logs() as told, anyio.fail_after(WITHIN_S):
            assert await to_thread.run_sync(marks.all) == {1: "one", 3: "three"}
            assert await to_thread.run_sync(marks.all) == {1: "one", 3: "three"}
            assert await to_thread.run_sync(marks.of, 2) is None
        assert (marks.hangs(1), marks.hangs(2), marks.hangs(4)) == (False, True, True)
    assert sorted(one["pid"] for one in told) == [2, 4]  # once each


async def test_it_is_read_again_once_the_read_has_returned(tmp_path: Path) -> None:
    marks = Marks(tmp_path)
    with structlog.testing.capture_logs(), hanging(tmp_path, 2):
        assert await to_thread.run_sync(marks.all) == {}
    with anyio.fail_after(WITHIN_S):
        while marks.hangs(2):  # noqa: ASYNC110 - its thread tells nobody
            await anyio.sleep(0.001)
    (tmp_path / "2" / "environ").unlink()
    (tmp_path / "2").rmdir()
    marked(tmp_path, 2, "two")
    assert marks.all() == {2: "two"}


async def test_neither_start_nor_end_of_a_daemon_waits_for_it(tmp_path: Path) -> None:
    with process(KIND, ORPHAN) as child, process(DEAF, ORPHAN) as stuck:
        marked(tmp_path, child.pid, ORPHAN)
        ledger, rows = MemoryLedger(), [row_of(stuck)]
        with hanging(tmp_path, stuck.pid), structlog.testing.capture_logs(), anyio.fail_after(10):
            marks = Marks(tmp_path)
            assert await end_house("another house", marks=marks) == ()
            left = await reap(rows, ledger=ledger, boot=boot_id(), grace_s=0.1, marks=marks)
        assert child.wait() == -15
        # Nobody may say that it has ended: it is the recorded one and lives.
        assert left == (Survivor(ORPHAN, stuck.pid),)
        assert ledger.notes == []
