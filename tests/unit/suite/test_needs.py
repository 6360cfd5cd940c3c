"""Tests with needs: left out and told, or required; counted by need. In suites of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[3]

SUITE = """
import pytest

def test_bare(): pass

@pytest.mark.prometheus
def test_scrape(): pass

@pytest.mark.prometheus
def test_rules(): pass

@pytest.mark.systemd
@pytest.mark.prometheus
def test_both(): pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "bin").mkdir()
    return tmp_path


def have(folder: Path, *programs: str) -> None:
    for name in programs:
        program = folder / "bin" / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)


def run(
    folder: Path, *words: str, require: str = "", floors: str = ""
) -> subprocess.CompletedProcess[str]:
    """The suite on a machine that has only what is in its folder."""
    (folder / "pyproject.toml").write_text(
        f"[tool.pytest]\nmin_tests = '1'\nmin_tests_that_need = [{floors}]\n"
    )
    environment = {
        "PATH": str(folder / "bin"),
        "PYTHONPATH": str(REPOSITORY),
        "MTPD_REQUIRE": require,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    plugins = ("-p", "xdist", "-p", "tests.needs", "-p", "tests.roll_call")
    return subprocess.run(
        (sys.executable, "-m", "pytest", "--all-must-run", "--strict-markers", *plugins, *words),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def left_out(said: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in said.stdout.splitlines() if line.startswith("left out: ")]


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_a_bare_machine_leaves_them_out_with_one_line_for_each_need(
    folder: Path, workers: tuple[str, ...]
) -> None:
    have(folder, "prometheus", "promtool")
    said = run(folder, *workers, floors="'prometheus 2', 'systemd 1'")
    (line,) = left_out(said)
    assert line == (
        "left out: 1 test that needs systemd's own judgement of units "
        "(no systemd-analyze, no systemd-sysusers on the PATH): apt-get install systemd"
    )
    assert (said.returncode, "3 passed" in said.stdout) == (0, True), said.stdout
    assert "skipped" not in said.stdout


def test_what_lacks_everything_still_runs_what_needs_nothing(folder: Path) -> None:
    said = run(folder, floors="'prometheus 2'")
    assert [line.split(" (")[0] for line in left_out(said)] == [
        "left out: 2 tests that need Prometheus",
        "left out: 1 test that needs systemd's own judgement of units",
    ]
    assert (said.returncode, "1 passed" in said.stdout) == (0, True), said.stdout


@pytest.mark.parametrize("require", ["prometheus", "all"])
def test_a_required_need_that_is_missing_fails_the_run_before_it_begins(
    folder: Path, require: str
) -> None:
    said = run(folder, require=require)
    assert said.returncode == pytest.ExitCode.USAGE_ERROR
    assert "required tests need Prometheus (no prometheus, no promtool" in said.stderr
    assert "passed" not in said.stdout


def test_a_need_that_nobody_knows_is_told(folder: Path) -> None:
    said = run(folder, require="prometheus,brouser")
    assert said.returncode == pytest.ExitCode.USAGE_ERROR
    assert "MTPD_REQUIRE names brouser; there are systemd, " in said.stderr


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_fewer_than_listed_of_a_need_fails_the_run(folder: Path, workers: tuple[str, ...]) -> None:
    have(folder, "prometheus", "promtool", "systemd-analyze", "systemd-sysusers")
    assert run(folder, *workers, floors="'prometheus 3', 'systemd 1'").returncode == 0
    said = run(folder, *workers, require="prometheus", floors="'prometheus 4', 'systemd 1'")
    assert said.returncode == pytest.ExitCode.TESTS_FAILED
    assert "3 tests ran that need prometheus, 4 must exist" in said.stdout


def test_one_that_skips_itself_fails_the_run(folder: Path) -> None:
    have(folder, "prometheus", "promtool")
    with (folder / "test_suite.py").open("a") as suite:
        suite.write("\ndef test_shy(): pytest.skip('not today')\n")
    said = run(folder)
    assert said.returncode == pytest.ExitCode.TESTS_FAILED
    assert "did not run: test_suite.py::test_shy" in said.stdout
