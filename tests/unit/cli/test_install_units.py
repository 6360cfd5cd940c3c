"""``mtpd install-units``: what is written where, what is refused, and what is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mtpd.cli.failure import exit_code_of
from mtpd.cli.mtpd import cli
from mtpd.config import sandbox
from tests.unit.cli.offline import write

if TYPE_CHECKING:
    from collections.abc import Sequence

MTPD = "/opt/mtpd/bin/mtpd"
MODEL = '[models.a]\nmodel = "/srv/models/a.gguf"\n'


class Machine:
    """Where the command is run."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self._capsys = home, capsys
        self.prefix = home / "prefix"

    def run(self, *words: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = exit_code_of(cli, ("install-units", *words))
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def install(self, *words: str, config: str = MODEL) -> tuple[int, str, str]:
        """For the system, below the prefix, with a configuration."""
        path = write(self.home, config)
        return self.run("--prefix", str(self.prefix), "--program", MTPD, "--config", path, *words)

    def files(self) -> list[str]:
        found = (path for path in self.prefix.rglob("*") if path.is_file())
        return sorted(str(path.relative_to(self.prefix)) for path in found)


@pytest.fixture
def machine(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Machine:
    monkeypatch.setattr(sandbox, "HIDDEN", (home / "hidden",))
    return Machine(home, capsys)


def systemctl(folder: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    program = folder / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'systemd {version} ({version}.4-1)'\necho '+PAM'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))


def test_the_systems_units_start_this_program_with_this_file_at_this_address(
    machine: Machine,
) -> None:
    code, out, _ = machine.install(config=f'[server]\nlisten = "127.0.0.1:8484"\n{MODEL}')
    assert code == 0
    assert machine.files() == [
        "systemd/system/mtpd-control.socket",
        "systemd/system/mtpd.service",
        "systemd/system/mtpd.socket",
        "sysusers.d/mtpd.conf",
        "tmpfiles.d/mtpd.conf",
    ]
    units = machine.prefix / "systemd" / "system"
    service, listener = (units / name for name in ("mtpd.service", "mtpd.socket"))
    config = machine.home / "mtpd.toml"
    assert f"\nExecStart={MTPD} serve --config {config}\n" in service.read_text()
    assert "\nListenStream=127.0.0.1:8484\n" in listener.read_text()
    assert service.stat().st_mode & 0o777 == 0o644
    assert [line.strip() for line in out.splitlines()[-3:]] == [
        "sudo systemd-sysusers && sudo systemd-tmpfiles --create mtpd.conf",
        "sudo systemctl daemon-reload",
        "sudo systemctl enable --now mtpd.socket mtpd-control.socket mtpd.service",
    ]


def test_the_cap_is_set_by_a_unit_of_its_own_where_one_is_declared(machine: Machine) -> None:
    code, out, _ = machine.install(config=f'[budget]\nhardware = "gfx906-16g-150w"\n{MODEL}')
    assert code == 0
    unit = machine.prefix / "systemd" / "system" / "mtpd-powercap.service"
    config = machine.home / "mtpd.toml"
    assert f"\nExecStart={MTPD} powercap apply --config {config}\n" in unit.read_text()
    assert out.splitlines()[-1].endswith(" mtpd.service mtpd-powercap.service")


def test_units_of_ones_own_lie_in_the_home_and_need_no_root(machine: Machine) -> None:
    code, out, err = machine.run("--user", "--program", MTPD)
    assert code == 0
    units = machine.home / ".config" / "systemd" / "user"
    assert sorted(path.name for path in units.iterdir()) == ["mtpd.service", "mtpd.socket"]
    config = machine.home / ".config" / "mtpd" / "mtpd.toml"
    assert f"\nExecStart={MTPD} serve --config {config}\n" in (units / "mtpd.service").read_text()
    assert "sudo" not in out
    assert "systemctl --user enable --now mtpd.socket mtpd.service" in out
    assert f"{config} is not there yet: without it the service ends with exit code 78" in err


@pytest.mark.parametrize(
    ("version", "expected"),
    [(252, []), (253, ["reload.conf"]), (257, ["backoff.conf", "reload.conf"])],
)
def test_newer_versions_of_systemd_get_what_they_understand(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, version: int, expected: list[str]
) -> None:
    systemctl(machine.home, monkeypatch, version)
    code, _, err = machine.install()
    assert code == 0
    assert "no systemctl" not in err
    folder = machine.prefix / "systemd" / "system" / "mtpd.service.d"
    assert sorted(path.name for path in folder.glob("*")) == expected


def test_without_systemd_the_units_are_written_and_it_is_told(machine: Machine) -> None:
    code, _, err = machine.install()
    assert code == 0
    assert "this machine has no systemctl" in err


def test_a_dry_run_prints_every_file_and_writes_none(machine: Machine) -> None:
    code, out, _ = machine.install("--dry-run")
    assert (code, machine.files()) == (0, [])
    for name in ("system/mtpd.service", "system/mtpd.socket", "system/mtpd-control.socket"):
        assert f"# {machine.prefix}/systemd/{name}\n[Unit]\n" in out
    assert "these would start it now and with the machine:" in out


def test_json_has_the_files_the_commands_and_the_warnings(machine: Machine) -> None:
    code, out, err = machine.install("--dry-run", "--json")
    report = json.loads(out)
    assert (code, err, report["written"], len(report["files"])) == (0, "", False, 5)
    assert set(report["files"][0]) == {"path", "text"}
    assert report["commands"][1] == "sudo systemctl daemon-reload"
    assert any("systemctl" in one for one in report["warnings"])


def test_a_second_time_changes_nothing_and_what_is_different_is_kept(machine: Machine) -> None:
    assert machine.install()[0] == machine.install()[0] == 0
    unit = machine.prefix / "systemd" / "system" / "mtpd.service"
    unit.write_text("[Service]\n# mine\n")
    code, _, err = machine.install()
    assert (code, unit.read_text()) == (1, "[Service]\n# mine\n")
    assert f"{unit} is already there and is different" in err
    assert "systemctl edit" in err
    assert machine.install("--force")[0] == 0
    assert "WatchdogSec" in unit.read_text()


def test_a_program_that_the_service_cannot_see_is_refused(machine: Machine) -> None:
    program = machine.home / "hidden" / "venv" / "bin" / "mtpd"
    code, _, err = machine.run("--prefix", str(machine.prefix), "--program", str(program))
    assert (code, machine.files()) == (1, [])
    assert f"the program {program} would be hidden from the service, as all homes are" in err
    assert "--user" in err
    assert machine.run("--user", "--program", str(program))[0] == 0


def test_model_files_and_engines_that_the_service_cannot_see_are_told(machine: Machine) -> None:
    hidden = machine.home / "hidden"
    engine = f'[engine]\nbinary = "{hidden}/llama-server"\n'
    code, _, err = machine.install(config=f'{engine}[models.a]\nmodel = "{hidden}/a.gguf"\n')
    assert code == 0
    assert f"the engine {hidden}/llama-server is hidden from the service" in err
    assert f"the model file of a, {hidden}/a.gguf is hidden from the service" in err


def test_an_engine_that_only_the_user_finds_is_told(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl(machine.home, monkeypatch, 252)
    engine = machine.home / "bin" / "llama-server"
    engine.write_text("#!/bin/sh\n")
    engine.chmod(0o755)
    _, _, err = machine.install()
    assert f"the service does not find {engine} on its PATH: name it as [engine] binary" in err


def test_an_address_without_a_port_is_refused_with_its_line(machine: Machine) -> None:
    code, _, err = machine.install(config=f'[server]\nlisten = "127.0.0.1:0"\n{MODEL}')
    assert code == 78
    assert "mtpd.toml:2: server.listen: a socket unit needs a port, not 127.0.0.1:0" in err


def test_a_folder_that_cannot_be_written_is_one_sentence(machine: Machine) -> None:
    (machine.home / "prefix").write_text("no folder")
    code, _, err = machine.install()
    assert code == 1
    assert "cannot be written: Not a directory" in err
    assert "sudo" in err


def test_the_program_is_this_installation_unless_another_is_named(machine: Machine) -> None:
    _, out, _ = machine.run("--user", "--dry-run")
    assert f"ExecStart={Path(sys.executable).with_name('mtpd')} serve --config " in out


@pytest.mark.parametrize("words", [("--prefix",), ("--nonsense",)])
def test_wrong_use_is_2(machine: Machine, words: Sequence[str]) -> None:
    assert machine.run(*words)[0] == 2


@pytest.mark.parametrize("name", ['a"b', "a'b", "a\\b", "a\nb"])
def test_a_program_that_systemd_would_not_start_is_refused(machine: Machine, name: str) -> None:
    code, _, err = machine.install("--program", f"/opt/{name}/mtpd")
    assert (code, machine.files()) == (1, [])
    assert "systemd starts no program whose path has a quote" in " ".join(err.split())


def test_a_file_that_is_no_text_is_one_that_is_different(machine: Machine) -> None:
    assert machine.install()[0] == 0
    unit = machine.prefix / "systemd" / "system" / "mtpd.service"
    unit.write_bytes(b"\xff\xfe")
    code, _, err = machine.install()
    assert code == 1
    assert f"{unit} is already there and is different" in err
