"""``mtpd powercap``: sets the cap, says whether it is in force, and refuses what cannot be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mtpd.cli import powercap_commands
from mtpd.cli.failure import exit_code_of
from mtpd.cli.mtpd import cli
from tests.fakes import sysfs
from tests.unit.cli.offline import write

if TYPE_CHECKING:
    from pathlib import Path

CAPPED = '[budget]\nhardware = "gfx906-16g-150w"\n'


class Machine:
    """A machine with a fake card, on which the command is run."""

    def __init__(self, tree: sysfs.Tree, capsys: pytest.CaptureFixture[str]) -> None:
        self.tree = tree
        self._capsys = capsys

    def run(self, *words: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = exit_code_of(cli, ("powercap", *words))
        said = self._capsys.readouterr()
        return code, said.out, said.err


@pytest.fixture
def machine(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Machine:
    tree = sysfs.build(home / "root", "two_gpus")
    monkeypatch.setattr(powercap_commands, "ROOT", home / "root")
    return Machine(tree, capsys)


def test_the_declared_cap_is_set_and_read_back(machine: Machine, home: Path) -> None:
    machine.tree.sensors(cap_w=190)
    path = write(home, CAPPED)
    assert machine.run("apply", "--config", path) == (
        0,
        "0000:03:00.0: declared: the power cap is 150 W\n",
        "",
    )
    assert machine.tree.read(f"{sysfs.hwmon()}/power1_cap") == "150000000"


def test_a_cap_that_is_not_in_force_is_said_and_nothing_is_changed(
    machine: Machine, home: Path
) -> None:
    machine.tree.sensors(cap_w=190)
    path = write(home, CAPPED)
    code, out, _ = machine.run("verify", "--config", path)
    assert code == 1
    assert out == (
        "0000:03:00.0: wrong: the power cap is 190 W, not the 150 W that are configured\n"
    )
    assert machine.tree.read(f"{sysfs.hwmon()}/power1_cap") == "190000000\n"
    assert machine.run("verify", "--watts", "190")[0] == 0


def test_json_has_the_limits(machine: Machine) -> None:
    code, out, _ = machine.run("verify", "--watts", "150", "--json", "--device", sysfs.SECOND)
    assert code == 0
    assert json.loads(out) == {
        "device": sysfs.SECOND,
        "state": "declared",
        "reason": "the power cap is 150 W",
        "wanted_w": 150.0,
        "current_w": 150.0,
        "default_w": 190.0,
        "min_w": 0.0,
        "max_w": 190.0,
    }


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("apply", "--watts", "0"), 1, "restore the default"),
        (("apply", "--watts", "250"), 1, "above the highest power cap of the card, 190 W"),
        (("apply", "--watts", "-1"), 2, "Invalid value"),
        (("apply",), 78, "no power cap is declared"),
        (("verify",), 78, "no power cap is declared"),
        (("verify", "--watts", "150", "--device", "0000:44:00.0"), 1, "there is no card"),
    ],
)
def test_what_cannot_be_is_refused(
    machine: Machine, words: tuple[str, ...], code: int, said: str
) -> None:
    found, out, err = machine.run(*words)
    assert (found, out) == (code, "")
    assert said in err


def test_a_machine_without_a_card_says_who_was_asked(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sysfs.build(home / "root", "no_gpu")
    monkeypatch.setattr(powercap_commands, "ROOT", home / "root")
    code = exit_code_of(cli, ("powercap", "verify", "--watts", "150"))
    assert code == 1
    assert "sysfs: it sees no device" in capsys.readouterr().err
