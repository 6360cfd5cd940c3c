"""With ``--all-must-run`` nothing is skipped silently, and no test is lost.

The run fails when a collected test did not run to a verdict, when fewer ran than exist
(``min_tests``), and when fewer of those ran that need something which is here
(``min_tests_that_need``, one ``NEED COUNT`` a line).
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.needs import present

__all__ = ["RollCall"]

_BARE = ""
"""Stands for the tests that need nothing but Python."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-must-run",
        action="store_true",
        help="fail when a collected test did not run to a verdict, or fewer ran than exist",
    )
    parser.addini("min_tests", "how many tests that need nothing exist at least", default="0")
    parser.addini("min_tests_that_need", "NEED COUNT: how many that need it exist", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    worker = hasattr(config, "workerinput")  # only the process that sees all reports counts
    if config.getoption("--all-must-run") and not worker:
        floors = {_BARE: int(config.getini("min_tests"))}
        for line in config.getini("min_tests_that_need"):
            need, count = line.split()
            floors[need] = int(count)
        config.pluginmanager.register(RollCall(floors), "roll-call")


class RollCall:
    """Compares the tests that were collected with those that ran to a verdict."""

    def __init__(self, floors: dict[str, int]) -> None:
        self.floors = floors
        self.listed: set[str] = set()
        self.ran: set[str] = set()
        self.by_need: Counter[str] = Counter()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.listed.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        self.listed.update(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" or report.skipped or report.nodeid in self.ran:
            return
        self.ran.add(report.nodeid)
        needs = str(dict(report.user_properties).get("needs", "")).split()
        self.by_need.update(needs or [_BARE])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        missing = sorted(self.listed - self.ran)
        short = [
            f"{self.by_need[need]} tests ran that need {need or 'nothing'}, {floor} must exist"
            for need, floor in self.floors.items()
            if self.by_need[need] < floor and (need == _BARE or present(need))
        ]
        if not missing and not short:
            return
        terminal = session.config.get_terminal_writer()
        terminal.line(f"\n{len(self.ran)} tests ran, {len(self.listed)} listed", red=True)
        for line in short:
            terminal.line(line, red=True)
        for name in missing:
            terminal.line(f"did not run: {name}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
