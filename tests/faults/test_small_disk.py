"""A state directory on a disk that is full, or read-only: the daemon serves, tells, and recovers.

The disk is a real one of a few KiB, mounted in a namespace of the daemon's own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import anyio
import pytest

from mtpd.supervise.identity import pids_of
from mtpd.units import EngineId
from tests.fakes.house import home
from tests.fakes.script import Script
from tests.fakes.serve import serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fakes.house import Home
    from tests.fakes.serve import Serving

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(300)]

WITHIN_S = 60.0
IN_A_NAMESPACE = ("unshare", "--mount", "sh", "-ec")
SMALL = 'mount -t tmpfs -o mode=700,size="$1" none "$2"; shift 2; exec "$@"'
READ_ONLY = 'mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; shift; exec "$@"'
FILLER = "filler"


@asynccontextmanager
async def _on_a_small_disk(place: Home, size: str) -> AsyncIterator[Serving]:
    place.directories.state.mkdir(mode=0o700)
    before = (*IN_A_NAMESPACE, SMALL, "sh", size, str(place.directories.state))
    async with serve(place, before=before) as daemon:
        await daemon.until_serving()
        yield daemon
        assert await daemon.end(signal.SIGTERM) == 0


def _inside(daemon: Serving) -> Path:
    """The state directory as the daemon sees it."""
    root = Path(f"/proc/{daemon.process.pid}/root")
    return root / daemon.place.directories.state.relative_to("/")


async def _remount(daemon: Serving, *options: str) -> None:
    state = str(daemon.place.directories.state)
    enter = ["nsenter", "--target", str(daemon.process.pid), "--mount"]
    await anyio.run_process([*enter, "mount", "-o", ",".join(("remount", *options)), state])


async def _status(daemon: Serving) -> dict[str, Any]:
    async with (
        aiohttp.ClientSession(daemon.url) as client,
        client.get("/mtpd/v1/status") as reply,
    ):
        assert reply.status == 200, await reply.text()
        found: dict[str, Any] = json.loads(await reply.text())
        return found


async def _until(daemon: Serving, *, degraded: bool) -> list[str]:
    with anyio.fail_after(WITHIN_S):
        while True:
            told: list[str] = (await _status(daemon))["degraded"]
            if bool(told) == degraded:
                return told
            await anyio.sleep(0.1)


async def _serves(daemon: Serving, model: str = "alpha") -> None:
    body = {"model": model, "prompt": "x", "n_predict": 4}
    async with (
        aiohttp.ClientSession(daemon.url) as client,
        client.post("/completion", json=body) as reply,
    ):
        assert reply.status == 200, await reply.text()


async def _loads_another(daemon: Serving) -> int:
    """Ask for what has to be written down; the status of the answer."""
    socket = aiohttp.UnixConnector(str(daemon.place.directories.runtime / "control.sock"))
    async with (
        aiohttp.ClientSession("http://mtpd", connector=socket) as client,
        client.post("/mtpd/v1/load", json={"model": "beta"}) as reply,
    ):
        return reply.status


def _fill(folder: Path) -> None:
    """Take every byte that is free."""
    descriptor = os.open(folder / FILLER, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for block in (65536, 4096, 1):
            with suppress(OSError):
                while True:
                    os.write(descriptor, bytes(block))
    finally:
        os.close(descriptor)


def _starts(state: Path) -> int:
    return len(_rows(state))


def _rows(state: Path) -> list[tuple[str, bool]]:
    """Engine starts that are on the disk: the profile, and whether it has ended."""
    with tempfile.TemporaryDirectory() as name:
        for file in state.glob("mtpd.sqlite3*"):
            shutil.copy(file, name)
        with closing(sqlite3.connect(Path(name) / "mtpd.sqlite3")) as conn:
            found = conn.execute(
                "SELECT profile, ended_at IS NOT NULL FROM engine_starts ORDER BY rowid"
            )
            return [(profile, bool(ended)) for profile, ended in found]


async def test_a_disk_that_is_too_small_at_start_is_told_and_holds_all_once_it_has_grown() -> None:
    async with home(Script()) as place, _on_a_small_disk(place, "64k") as daemon:
        told = await _until(daemon, degraded=True)
        assert told[0].startswith("state: nothing is kept over a restart: ")
        await _serves(daemon)
        assert await _until(daemon, degraded=True) == told
        await _remount(daemon, "size=16m")
        await _until(daemon, degraded=False)
        await _serves(daemon)
        assert _starts(_inside(daemon)) == 1
        assert b"store.durable_again" in daemon.log + await _rest(daemon)


async def _rest(daemon: Serving) -> bytes:
    """What the log has by now."""
    assert daemon.process.stderr is not None
    text = b""
    with anyio.move_on_after(0.5):
        while True:
            text += await daemon.process.stderr.receive()
    return text


async def test_a_disk_that_fills_up_is_told_and_what_serves_goes_on_until_there_is_space() -> None:
    async with home(Script()) as place, _on_a_small_disk(place, "4m") as daemon:
        await _serves(daemon)
        assert (await _status(daemon))["degraded"] == []
        _fill(_inside(daemon))
        with anyio.fail_after(WITHIN_S):
            while not (await _status(daemon))["degraded"]:
                await _loads_another(daemon)
                await _serves(daemon)
        assert (await _until(daemon, degraded=True))[0].startswith("state: the state database ")
        await _serves(daemon)
        (_inside(daemon) / FILLER).unlink()
        await _until(daemon, degraded=False)
        assert await _loads_another(daemon) < 300


def _noted(place: Home) -> list[str]:
    """Engine starts that are noted beside the sockets."""
    files = place.directories.runtime.glob("starts-*.json")
    return [row["engine_id"] for file in files for row in json.loads(file.read_text())["starts"]]


async def _until_full(daemon: Serving) -> None:
    _fill(_inside(daemon))
    with anyio.fail_after(WITHIN_S):
        while not (await _status(daemon))["degraded"]:
            await _loads_another(daemon)


async def test_an_engine_starts_on_a_disk_that_filled_up_and_its_row_is_written_later() -> None:
    async with home(Script()) as place, _on_a_small_disk(place, "4m") as daemon:
        await _serves(daemon)
        await _until_full(daemon)
        on_disk = _rows(_inside(daemon))
        await _serves(daemon, "beta")  # stops alpha, which shares its seat
        assert (await _status(daemon))["degraded"][0].startswith("state: the state database ")
        assert len(_noted(place)) == 1
        assert _rows(_inside(daemon)) == on_disk, "something could be written: nothing was shown"
        (_inside(daemon) / FILLER).unlink()
        await _until(daemon, degraded=False)
        with anyio.fail_after(WITHIN_S):
            while _noted(place):  # noqa: ASYNC110 - a file tells nobody
                await anyio.sleep(0.05)
        assert ("beta", False) in _rows(_inside(daemon))
        assert ("alpha", True) in _rows(_inside(daemon))
        told = await _events(daemon)
    assert [one is None for one in told[:2]] == [False, True], told


async def _events(daemon: Serving) -> list[str | None]:
    """What the stream says of the disk, from the start of the daemon on."""
    text = b""
    async with (
        aiohttp.ClientSession(daemon.url) as client,
        client.get("/mtpd/v1/events?after=0&types=store.changed") as stream,
    ):
        with anyio.move_on_after(2):
            async for chunk in stream.content.iter_any():
                text += chunk
    data = [line[5:] for line in text.splitlines() if line.startswith(b"data:")]
    events = [json.loads(line)["event"] for line in data if b'"degraded"' in line]
    return [event["degraded"] for event in events]


async def test_a_daemon_that_is_killed_on_a_full_disk_finds_what_it_started_there() -> None:
    """What lives on is a helper of the engine: the parent-death signal does not reach it."""
    async with home(Script(hold_stdout_grandchild=True)) as place:
        place.directories.state.mkdir(mode=0o700)
        before = (*IN_A_NAMESPACE, SMALL, "sh", "4m", str(place.directories.state))
        async with serve(place, before=before) as daemon:
            await daemon.until_serving()
            await _until_full(daemon)
            await _serves(daemon, "beta")
            (noted,) = _noted(place)
            daemon.process.kill()
            await daemon.process.wait()
            assert pids_of(EngineId(noted)), "it died with its daemon: nothing was shown"
            async with serve(place) as after:
                await after.until_serving()
                assert pids_of(EngineId(noted)) == ()
                assert _noted(place) == []
                assert b"orphan.signalled" in after.log
                assert await after.end(signal.SIGTERM) == 0


async def test_a_directory_that_is_read_only_at_start_is_served_from_with_what_it_knows() -> None:
    async with home(Script()) as place:
        async with serve(place) as daemon:
            await daemon.until_serving()
            await _serves(daemon)
            daemon.process.kill()  # what was written last lies in the WAL
            await daemon.process.wait()
        state = place.directories.state
        before = {one.name: one.read_bytes() for one in _files(state)}
        for _ in range(2):
            command = (*IN_A_NAMESPACE, READ_ONLY, "sh", str(state))
            async with serve(place, before=command) as daemon:
                await daemon.until_serving()
                assert (await _until(daemon, degraded=True))[0].startswith("state: ")
                await _serves(daemon)
                assert await daemon.end(signal.SIGTERM) == 0
        assert {one.name: one.read_bytes() for one in _files(state)} == before
        command = (*IN_A_NAMESPACE, READ_ONLY, "sh", str(state))
        async with serve(place, before=command) as daemon:
            await daemon.until_serving()
            await _remount(daemon, "bind", "rw")
            await _until(daemon, degraded=False)
            assert await daemon.end(signal.SIGTERM) == 0
        assert _starts(state) == 1


def _files(folder: Path) -> list[Path]:
    return [one for one in folder.iterdir() if one.is_file()]


async def test_a_disk_that_turns_read_only_under_the_daemon_is_told_and_serving_goes_on() -> None:
    """As ext4 does once it has seen an error."""
    async with home(Script()) as place:
        image, state = place.root / "image", place.directories.state
        state.mkdir()
        with image.open("wb") as file:
            file.truncate(24 * 1024 * 1024)
        await anyio.run_process(["mkfs.ext4", "-q", str(image)], stderr=subprocess.STDOUT)
        script = 'mount -o loop "$1" "$2"; chmod 700 "$2"; shift 2; exec "$@"'
        before = (*IN_A_NAMESPACE, script, "sh", str(image), str(state))
        async with serve(place, before=before) as daemon:
            await daemon.until_serving()
            await _serves(daemon)
            await _remount(daemon, "abort")
            with anyio.fail_after(WITHIN_S):
                while not (await _status(daemon))["degraded"]:
                    await _loads_another(daemon)
            await _serves(daemon)
            await _serves(daemon, "beta")
            assert len(_noted(place)) == 1
            assert await daemon.end(signal.SIGTERM) == 0
