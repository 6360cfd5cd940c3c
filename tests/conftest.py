"""Rules for the whole suite: nothing is skipped silently, nothing is left behind."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ("tests.needs", "tests.roll_call")

settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
settings.load_profile("default")


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Fail a test that leaves a child process or a thread."""
    had_children = _has_children()
    processes = set(psutil.Process().children(recursive=True)) if had_children else set()
    threads = set(threading.enumerate())
    yield
    if had_children or _has_children():
        left = set(psutil.Process().children(recursive=True)) - processes
        alive = [child for child in left if child.status() != psutil.STATUS_ZOMBIE]
        assert not alive, f"processes left behind: {alive}"
    stray = [t for t in threading.enumerate() if t not in threads and _ours(t)]
    assert not stray, f"threads left behind: {stray}"


def _has_children() -> bool:
    """Cheap, as it runs around every test; looking through /proc is not."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _ours(thread: threading.Thread) -> bool:
    """Leave out the loop's own executor and watcher threads, which end with the loop."""
    return thread.is_alive() and thread.name.startswith("mtpd")


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of recorded logs, replies and vectors."""
    return Path(__file__).parent / "corpus"
