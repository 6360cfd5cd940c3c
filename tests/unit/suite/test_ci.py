"""``.ci/run``: gets what is missing, requires every test, and says why where it cannot."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.needs import NEEDS

REPOSITORY = Path(__file__).parents[3]
PACKAGES = [
    line
    for line in (REPOSITORY / ".ci" / "packages").read_text().splitlines()
    if not line.startswith("#")
]
MAKE = 'echo "make $* with MTPD_REQUIRE=$MTPD_REQUIRE"'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The only programs that the script finds."""
    for name in ("bash", "dirname", "grep", "cat"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    put(tmp_path, "make", MAKE)
    return tmp_path


def put(folder: Path, name: str, script: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (folder / "bash", REPOSITORY / ".ci" / "run"),
        env={"PATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def installed(folder: Path, *, but: str = "") -> None:
    """Every package is there, but for one."""
    missing = f'[ "$4" = "{but}" ] && exit 1' if but else ""
    put(folder, "dpkg-query", f"{missing}\nprintf installed")


def test_with_everything_there_every_test_is_required(folder: Path) -> None:
    installed(folder)
    said = run(folder)
    assert (said.returncode, said.stdout) == (0, "make check with MTPD_REQUIRE=all\n")


def test_what_is_missing_is_installed_and_nothing_is_started(folder: Path) -> None:
    installed(folder, but="prometheus")
    put(folder, "id", "echo 0")
    put(folder, "apt-get", 'echo "apt-get $* in run level $RUNLEVEL" >&2')
    said = run(folder)
    assert said.returncode == 0
    assert said.stdout.splitlines() == [
        "installing prometheus",
        "make check with MTPD_REQUIRE=all",
    ]
    assert said.stderr.splitlines() == [
        "apt-get update -qq in run level ",
        "apt-get install -qq -y --no-install-recommends prometheus in run level 1",
    ]


def test_elsewhere_than_on_debian_it_says_so(folder: Path) -> None:
    said = run(folder)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith(".ci/run: this is not Debian: every test needs the packages of")


def test_without_root_it_names_what_is_missing(folder: Path) -> None:
    installed(folder, but="chromium")
    put(folder, "id", "echo 1000")
    said = run(folder)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == ".ci/run: not root, so these packages cannot be installed: chromium\n"


@pytest.mark.parametrize(
    ("fails", "sentence"),
    [
        ("update", ".ci/run: apt-get update failed: no package list, so no fish"),
        ("install", ".ci/run: apt-get could not install fish"),
    ],
)
def test_where_apt_fails_it_says_at_what(folder: Path, fails: str, sentence: str) -> None:
    installed(folder, but="fish")
    put(folder, "id", "echo 0")
    put(folder, "apt-get", f'[ "$1" != {fails} ]')
    said = run(folder)
    assert (said.returncode, said.stderr.splitlines()[-1]) == (1, sentence)
    assert "make" not in said.stdout


def test_ci_installs_what_the_needs_ask_for() -> None:
    asked = {
        package
        for need in NEEDS
        for words in re.findall(r"apt-get install ([a-z0-9 -]+)", need.get)
        for package in words.split()
    }
    assert asked - set(PACKAGES) == set()
    assert {"chromium", "prometheus"} <= asked
    assert sorted(set(PACKAGES)) == PACKAGES, "one a line, in order"
