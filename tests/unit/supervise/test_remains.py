"""What a process left behind, where it does not go away."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import anyio
import structlog

from mtpd.supervise.cgroups import Cgroup
from mtpd.supervise.remains import Remains

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_group_that_does_not_empty_is_told_and_not_waited_for(tmp_path: Path) -> None:
    group, done = Cgroup(tmp_path), anyio.Event()
    events = anyio.Path(tmp_path / "cgroup.events")
    await events.write_text("populated 1\n")
    with structlog.testing.capture_logs() as logs:
        Remains(f"stuck-{os.getpid()}", group=group, done=done.set, limit_s=0.1).end()
        with anyio.fail_after(5):
            await done.wait()
    assert [one["event"] for one in logs] == ["engine.left_behind"]
    assert await (events.parent / "cgroup.kill").read_text() == "1"


async def test_a_look_that_never_ends_is_not_waited_for() -> None:
    """As reading the environment of a process can be that holds its own memory's lock."""
    release, done = threading.Event(), anyio.Event()

    def look(_engine: str) -> tuple[int, ...]:
        release.wait(30)
        return ()

    Remains("engine", group=None, done=done.set, kill=look, limit_s=0.1).end()
    with anyio.fail_after(5):
        await done.wait()
    release.set()
