"""``mtpctl doctor`` as a command: exit codes, JSON, and nothing changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import structlog

from mtpd.cli import doctor_command
from mtpd.cli.decode import decode
from mtpd.cli.doctor.views import DoctorView
from mtpd.cli.loglines import logs_to_stderr
from tests.unit.cli.support import Mtpctl

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.doctor.world import World


@pytest.fixture
def mtpctl(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Mtpctl:
    monkeypatch.setattr(doctor_command, "ROOT", world.tree.root)
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    return Mtpctl(capsys, world.socket)


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_mode) for path in found}


def test_all_is_well_and_nothing_was_changed(world: World, mtpctl: Mtpctl) -> None:
    before = _files(world.home)
    ran = mtpctl("doctor")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("nothing is wrong, as ")
    assert _files(world.home) == before
    assert not world.state.exists()


def test_what_was_found_ends_with_1_and_stands_in_the_json(world: World, mtpctl: Mtpctl) -> None:
    world.model.unlink()
    ran = mtpctl("doctor")
    assert ran.code == 1
    assert "error  model files\n" in ran.out
    told = mtpctl("doctor", "--json")
    assert (told.code, told.err) == (1, "")
    view = decode(DoctorView, json.loads(told.out))
    assert list(json.loads(told.out)) == list(DoctorView.__dataclass_fields__)
    assert (view.ok, [one.check for one in view.findings]) == (False, ["model files"])
    assert f"    $ {view.findings[0].fix}\n" in ran.out, "the command stands on one line"


def test_another_configuration_and_state_directory_can_be_named(
    world: World, mtpctl: Mtpctl
) -> None:
    other = world.home / "other.toml"
    other.write_text("[server]\nlistn = 1\n")
    state = world.home / "state"
    state.mkdir(mode=0o777)
    state.chmod(0o777)
    ran = mtpctl("doctor", "--config", str(other), "--state-dir", str(state), "--json")
    view = decode(DoctorView, json.loads(ran.out))
    assert view.config == str(other)
    assert [one.check for one in view.findings] == ["configuration", "state"]


def test_what_readers_log_does_not_stand_between_results(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = structlog.get_config()
    structlog.reset_defaults()
    try:
        logs_to_stderr()
        structlog.get_logger().warning("gpu.sources_differ")
    finally:
        structlog.configure(**before)
    told = capsys.readouterr()
    assert (told.out, "gpu.sources_differ" in told.err) == ("", True)
