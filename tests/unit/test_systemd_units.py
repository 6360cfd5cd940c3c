"""The shipped units, as systemd itself judges them, and as they are filled in.

Needs systemd-analyze; where there is none, a line at the head of the run says so.
"""

from __future__ import annotations

import configparser
import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from mtpd.config.data import units_dir
from mtpd.config.unit_text import Setup, filled

if TYPE_CHECKING:
    from pathlib import Path

SYSTEM = ("mtpd.service", "mtpd.socket", "mtpd-control.socket", "mtpd-powercap.service")
USER = ("mtpd.service", "mtpd.socket")
LIMITS = {"mtpd.service": 2.0, "mtpd-powercap.service": 1.5}

pytestmark = pytest.mark.systemd


def analyze(*words: str | Path, runtime: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ("/usr/bin/env", "systemd-analyze", *words),
        env={"XDG_RUNTIME_DIR": str(runtime), "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def written(folder: Path, names: tuple[str, ...], *, user: bool = False) -> list[Path]:
    """The units as installed, starting a program that exists."""
    program = folder / "a program" / "mtpd"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    setup = Setup(
        program=(str(program),), config=str(folder / "100% mine.toml"), listen="[::1]:8484"
    )
    shipped = units_dir() / "user" if user else units_dir()
    paths = []
    for name in names:
        path = folder / name
        path.write_text(filled((shipped / name).read_text(), setup))
        paths.append(path)
    return paths


def test_systemd_has_nothing_to_say_of_the_systems_units(tmp_path: Path) -> None:
    said = analyze("verify", "--man=no", *written(tmp_path, SYSTEM), runtime=tmp_path)
    # The exit code alone is 0 for unknown keys and values.
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


def test_systemd_has_nothing_to_say_of_the_users_units(tmp_path: Path) -> None:
    units = written(tmp_path, USER, user=True)
    said = analyze("verify", "--user", "--man=no", *units, runtime=tmp_path)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


def test_a_mistake_in_a_unit_is_seen(tmp_path: Path) -> None:
    units = written(tmp_path, SYSTEM)
    units[0].write_text(units[0].read_text().replace("WatchdogSec=20s", "WatchDogSec=20s"))
    said = analyze("verify", "--man=no", *units, runtime=tmp_path)
    assert (said.returncode, "WatchDogSec" in said.stderr) == (0, True)


@pytest.mark.parametrize("name", LIMITS)
def test_the_exposure_that_systemd_sees_stays_small(tmp_path: Path, name: str) -> None:
    (unit,) = written(tmp_path, (name,))
    said = analyze("security", "--offline=true", "--json=short", unit, runtime=tmp_path)
    rows = json.loads(said.stdout)
    assert len(rows) > 50, "hardly anything was judged"
    said = analyze("security", "--offline=true", "--no-pager", unit, runtime=tmp_path)
    score = float(said.stdout.partition(f"Overall exposure level for {name}: ")[2].split()[0])
    assert score <= LIMITS[name]


def test_systemd_makes_the_user_and_its_groups() -> None:
    said = subprocess.run(
        (
            "/usr/bin/env",
            "systemd-sysusers",
            "--dry-run",
            str(units_dir() / "sysusers.d" / "mtpd.conf"),
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert "mtpd" in said.stdout + said.stderr


def section(path: Path, name: str) -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(path.read_text())
    return dict(parser[name])


def test_both_services_promise_the_same() -> None:
    ours, users = (
        section(units_dir() / at, "Service") for at in ("mtpd.service", "user/mtpd.service")
    )
    for key in ("Type", "NotifyAccess", "WatchdogSec", "KillMode", "RestartPreventExitStatus"):
        assert ours[key] == users[key]
    assert (ours["Type"], ours["KillMode"]) == ("notify", "mixed")
    assert ours["RestartPreventExitStatus"] == "78"
    for at in ("mtpd.socket", "user/mtpd.socket"):
        assert section(units_dir() / at, "Socket")["FileDescriptorName"] == "api"
    control = section(units_dir() / "mtpd-control.socket", "Socket")
    assert control["FileDescriptorName"] == "control"
