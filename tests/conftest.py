"""Rules for the whole suite: nothing is skipped silently, nothing is left behind."""

from __future__ import annotations

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

RAN = pytest.StashKey[set[str]]()
LISTED = pytest.StashKey[set[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-must-run",
        action="store_true",
        help="fail when a collected test did not run to a verdict, or fewer than min_tests did",
    )
    parser.addini("min_tests", "how many tests exist at least", default="0")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RAN] = set()
    config.stash[LISTED] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if call.when == "call" and not report.skipped:  # type: ignore[attr-defined]  # untyped hook result
        item.config.stash[RAN].add(item.nodeid)
    return report


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[LISTED].update(item.nodeid for item in session.items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if not config.getoption("--all-must-run") or config.getoption("--collect-only"):
        return
    listed, ran = config.stash[LISTED], config.stash[RAN]
    floor = int(config.getini("min_tests"))
    missing = sorted(listed - ran)
    if missing or len(ran) < floor:
        terminal = config.get_terminal_writer()
        terminal.line()
        terminal.line(f"{len(ran)} tests ran, {len(listed)} listed, {floor} must exist", red=True)
        for name in missing:
            terminal.line(f"did not run: {name}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Fail a test that leaves a child process or a thread."""
    processes = {child.pid for child in psutil.Process().children(recursive=True)}
    threads = set(threading.enumerate())
    yield
    left = [c for c in psutil.Process().children(recursive=True) if c.pid not in processes]
    alive = [c for c in left if c.status() != psutil.STATUS_ZOMBIE]
    assert not alive, f"processes left behind: {alive}"
    stray = [t for t in threading.enumerate() if t not in threads and _ours(t)]
    assert not stray, f"threads left behind: {stray}"


def _ours(thread: threading.Thread) -> bool:
    """Leave out the loop's own executor and watcher threads, which end with the loop."""
    return thread.is_alive() and thread.name.startswith("mtpd")


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of recorded logs, replies and vectors."""
    return Path(__file__).parent / "corpus"
