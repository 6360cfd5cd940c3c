"""Rules for the whole suite: nothing is skipped silently, nothing is left behind."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
settings.load_profile("default")

_HAS_SYSTEMD = shutil.which("systemd-analyze") is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-must-run",
        action="store_true",
        help="fail when a collected test did not run to a verdict, or fewer than min_tests did",
    )
    parser.addini("min_tests", "how many tests exist at least", default="0")


def pytest_configure(config: pytest.Config) -> None:
    worker = hasattr(config, "workerinput")  # only the process that sees all reports counts
    if config.getoption("--all-must-run") and not worker:
        config.pluginmanager.register(RollCall(int(config.getini("min_tests"))), "roll-call")


def pytest_report_header() -> list[str]:
    if _HAS_SYSTEMD:
        return []
    return ["systemd-analyze is not here: the tests of the units (-m systemd) are left out"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _HAS_SYSTEMD:
        return
    left_out = [item for item in items if item.get_closest_marker("systemd") is not None]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


class RollCall:
    """Compares the tests that were collected with those that ran to a verdict."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.listed: set[str] = set()
        self.ran: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.listed.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        self.listed.update(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and not report.skipped:
            self.ran.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        missing = sorted(self.listed - self.ran)
        if not missing and len(self.ran) >= self.floor:
            return
        terminal = session.config.get_terminal_writer()
        counts = f"{len(self.ran)} tests ran, {len(self.listed)} listed, {self.floor} must exist"
        terminal.line(f"\n{counts}", red=True)
        for name in missing:
            terminal.line(f"did not run: {name}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


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
