"""Two engines on one fake card, whose counters move as they load and end."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from mtpd.units import MIB
from tests.fakes import sysfs
from tests.fakes.card_memory import free
from tests.fakes.house import daemon_at, home, run_operation
from tests.fakes.script import Device, Script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import aiohttp

    from mtpd.app import Daemon

pytestmark = pytest.mark.slow

GROUP = """
[groups.small]
members = ["beta"]
exclusive = false
persistent = {persistent}
[groups.large]
members = ["alpha"]
exclusive = false
[budget]
headroom_mib = {headroom_mib}
"""


@asynccontextmanager
async def on_card(
    tree: sysfs.Tree, *, headroom_mib: int = 256, persistent: bool = True
) -> AsyncIterator[tuple[Daemon, aiohttp.ClientSession]]:
    group = GROUP.format(headroom_mib=headroom_mib, persistent=str(persistent).lower())
    async with home(Script(device=Device(), machine=str(tree.root))) as place:
        place.config.write_text(place.config.read_text() + group)
        async with daemon_at(place, machine=tree.root) as (running, client):
            yield running, client


async def ask(client: aiohttp.ClientSession, model: str) -> tuple[int, str]:
    body = {"model": model, "prompt": "x", "n_predict": 3}
    async with client.post("/completion", json=body) as response:
        return response.status, await response.text()


async def residencies(running: Daemon) -> dict[str, tuple[str, str]]:
    """State and residency of every engine."""
    engines = (await running.control.status()).engines
    return {engine.profile: (engine.state, engine.residency.state) for engine in engines}


async def test_each_of_two_is_resident_and_gives_back_its_own(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    nothing = free(tree.root)
    async with on_card(tree) as (running, client):
        for model in ("alpha", "beta", "alpha"):
            assert (await ask(client, model))[0] == 200
        alone = {"alpha": ("ready", "resident"), "beta": ("ready", "resident")}
        assert await residencies(running) == alone
        both = nothing - free(tree.root)
        stop = await running.control.unload(model="alpha", idempotency_key=None)
        assert (await run_operation(running, stop)).state == "done"
        assert await residencies(running) == {
            "alpha": ("stopped", "unknown"),
            "beta": ("ready", "resident"),
        }
        assert nothing - free(tree.root) == both // 2, "the scripted engines are of one size"
        status, text = await ask(client, "alpha")
        assert status == 503, "what it takes was only predicted before, and is measured now"
        assert f"alpha@0 needs {both / 2 / MIB:.0f} MiB of memory" in text
        everything = await running.control.unload(model=None, idempotency_key=None)
        assert (await run_operation(running, everything)).state == "done"
        assert free(tree.root) == nothing
        assert (await ask(client, "alpha"))[0] == 200


async def test_what_does_not_fit_beside_a_persistent_one_is_refused_with_the_bytes(
    tmp_path: Path,
) -> None:
    tree = sysfs.build(tmp_path, "idle")
    headroom_mib = free(tree.root) // MIB - 20
    async with on_card(tree, headroom_mib=headroom_mib) as (running, client):
        assert (await ask(client, "beta"))[0] == 200, "alone it is left to its start"
        status, text = await ask(client, "alpha")
        assert status == 503
        assert "alpha@0 needs" in text
        assert "beside beta (" in text
        assert "MiB measured, persistent)" in text
        assert (await residencies(running))["beta"] == ("ready", "resident")


async def test_what_may_go_is_unloaded_for_memory_and_the_journal_says_so(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    headroom_mib = free(tree.root) // MIB - 20
    async with on_card(tree, headroom_mib=headroom_mib, persistent=False) as (running, client):
        for model in ("beta", "alpha"):
            assert (await ask(client, model))[0] == 200
        states = {name: state for name, (state, _) in (await residencies(running)).items()}
        assert states == {"alpha": "ready", "beta": "stopped"}
        told = await running.control.decisions(subject="beta", limit=5)
        (decision,) = [one for one in told if one.act == "unload"]
        assert decision.reason.startswith("beta is unloaded: alpha@0 needs ")
