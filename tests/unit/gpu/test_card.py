"""The device that engines run on, found once at the start."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import anyio
import pytest
from structlog.testing import capture_logs

from mtpd.errors import DriverError
from mtpd.gpu.card import find_card
from mtpd.types import EngineBinary
from mtpd.units import HOST
from tests.fakes import sysfs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


def _engine(kind: str) -> EngineBinary:
    return EngineBinary(
        argv=("/usr/bin/llama-server",),
        kind=kind,
        flags=frozenset(),
        spec_types=frozenset(),
        digest="0",
        label="llama-server",
    )


async def test_the_first_card_is_taken_with_its_cap(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "two_gpus")
    with capture_logs() as logs:
        card = await find_card(_engine("external"), root=tmp_path)
    assert (card.key, card.is_gpu, card.power_cap_w) == (sysfs.FIRST, True, 150.0)
    assert card.device.uuid == f"GPU-{sysfs.SERIAL}"
    assert card.busy() is None
    refused = {entry["source"] for entry in logs if entry["event"] == "gpu.source_refused"}
    assert "nvml" in refused
    card.provider.close()


async def test_a_cap_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "malformed")
    card = await find_card(_engine("external"), root=tmp_path)
    assert (card.is_gpu, card.power_cap_w) == (True, None)
    card.provider.close()


def hang(file: Path) -> Callable[[], Awaitable[None]]:
    """Let reads of a file block in the kernel; returns what lets them go."""
    said, fifo = file.read_text(), file.with_name("hanging")
    file.unlink()
    os.mkfifo(fifo)
    fifo.rename(file)

    def answer() -> None:
        file.rename(fifo)
        file.write_text(said)
        os.close(os.open(fifo, os.O_WRONLY))

    async def let_go() -> None:
        answer()
        with anyio.fail_after(5):
            while any(one.name == "mtpd-telemetry" for one in threading.enumerate()):  # noqa: ASYNC110 - of a thread
                await anyio.sleep(0.01)

    return let_go


async def test_a_driver_that_hangs_when_the_cards_are_looked_up_does_not_hang_the_daemon(
    tmp_path: Path,
) -> None:
    sysfs.build(tmp_path, "idle")
    let_go = hang(tmp_path / sysfs.device() / "vendor")
    with anyio.fail_after(5), pytest.raises(DriverError, match=r"not answered within 0\.2 s"):
        await find_card(_engine("external"), root=tmp_path, deadline_s=0.2)
    await let_go()


async def test_a_first_reading_that_hangs_leaves_the_cap_unknown(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "idle")
    let_go = hang(tmp_path / sysfs.device() / "gpu_busy_percent")
    with anyio.fail_after(5):
        card = await find_card(_engine("external"), root=tmp_path, deadline_s=0.5)
    assert (card.is_gpu, card.power_cap_w) == (True, None)
    await let_go()


async def test_without_a_card_the_host_is_taken(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "no_gpu")
    card = await find_card(_engine("external"), root=tmp_path)
    assert (card.key, card.is_gpu, card.provider.name) == (HOST, False, "host")


async def test_a_processor_build_runs_on_the_host_whatever_is_there(tmp_path: Path) -> None:
    sysfs.build(tmp_path, "idle")
    card = await find_card(_engine("embedded"), root=tmp_path)
    assert (card.key, card.is_gpu, card.provider.name) == (HOST, False, "host")
