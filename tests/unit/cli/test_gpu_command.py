"""``mtpctl gpu``: the device as people read it."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING

from rich.console import Console

from mtpd.cli.gpu_command import device_report
from tests.fakes import devices
from tests.unit.cli.support import check_golden

if TYPE_CHECKING:
    from mtpd.gpu.views import DeviceView


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


def test_a_card_that_hangs_has_no_numbers() -> None:
    silent = dataclasses.replace(
        devices.card(), state="stale", reason="the driver hangs", fields=(), processes=()
    )
    assert "stale: the driver hangs" in _drawn(silent)
