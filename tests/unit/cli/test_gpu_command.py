"""``mtpctl gpu``: the device as people read it."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import TYPE_CHECKING

from rich.console import Console

from mtpd.cli.cells import NONE
from mtpd.cli.decode import decode
from mtpd.cli.gpu_command import device_report
from mtpd.gpu.views import DeviceView, ReadingView
from tests.fakes import devices
from tests.fakes.backend import ScriptedBackend, served_in_thread
from tests.unit.cli.support import Mtpctl, check_golden

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def _drawn(one: DeviceView, *, sources: bool = False) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(device_report((one,), sources=sources))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_card_is_shown_as_agreed() -> None:
    check_golden("gpu", _drawn(devices.card(), sources=True))


def test_sources_that_do_not_count_are_shown_when_asked_for() -> None:
    assert "impossible value 0" not in _drawn(devices.card())


def test_who_cannot_be_seen_is_not_nobody() -> None:
    unseen = dataclasses.replace(
        devices.card(), processes=(), processes_reason="the driver has not answered within 2 s"
    )
    assert "not known: the driver has not answered" in _drawn(unseen)
    assert "no process is seen" in _drawn(dataclasses.replace(unseen, processes_reason=None))


def test_a_machine_without_a_card_says_so_once() -> None:
    fields = tuple(
        dataclasses.replace(one, value=None, words=(), source=None, reason="there is no GPU")
        for one in devices.card().fields
    )
    text = _drawn(
        dataclasses.replace(devices.card(), vendor="cpu", device="host", fields=fields, host=None)
    )
    assert text.count("there is no GPU") == 1
    assert "idle power" not in text


def test_a_card_that_hangs_has_no_numbers() -> None:
    silent = dataclasses.replace(
        devices.card(), state="stale", reason="the driver hangs", fields=(), processes=()
    )
    assert "stale: the driver hangs" in _drawn(silent)


def test_a_running_daemon_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served_in_thread(ScriptedBackend(), tmp_path / "s") as served:
        mtpctl = Mtpctl(capsys, served.socket)
        shown, as_json = mtpctl("gpu"), mtpctl("gpu", "--json")
    assert (shown.code, shown.err) == (0, "")
    assert "AMD Radeon Pro VII" in shown.out
    (device,) = json.loads(as_json.out)["devices"]
    assert decode(DeviceView, device) == devices.card()


def test_an_idle_power_that_is_not_known_has_its_reason() -> None:
    unseen = ReadingView(value=None, source=None, reason="the card was not yet seen idle")
    text = _drawn(dataclasses.replace(devices.card(), idle_w=unseen))
    assert f"{NONE} (the card was not yet seen idle)" in text
