"""What a model was measured to take is known after a restart: nothing is unloaded to be safe."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from mtpd.config.data import bundled_model
from mtpd.units import MIB
from tests.fakes import sysfs
from tests.fakes.house import daemon_at, home, write_config
from tests.fakes.script import Device, Script
from tests.fakes.small_models import write_bert

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import aiohttp

    from mtpd.app import Daemon
    from mtpd.memory_views import NeedView
    from tests.fakes.house import Home

pytestmark = pytest.mark.slow

BESIDE = """
[groups.large]
members = ["alpha"]
exclusive = false
[groups.small]
members = ["beta"]
exclusive = false
"""
UNKNOWN = "context = 2048\nn_gpu_layers = 999"
"""Where a profile counts the layers itself nothing is forecast."""


def unforecast(place: Home, more: str = "") -> None:
    text = place.config.read_text().replace("context = 2048", f"{UNKNOWN}\n{more}")
    place.config.write_text(text + BESIDE)


@asynccontextmanager
async def on_card(root: Path) -> AsyncIterator[Home]:
    async with home(Script(device=Device(), machine=str(root))) as place:
        unforecast(place)
        yield place


async def ask(client: aiohttp.ClientSession, *models: str) -> None:
    for model in models:
        body = {"model": model, "prompt": "x", "n_predict": 3}
        async with client.post("/completion", json=body) as response:
            assert response.status == 200, await response.text()
            assert response.headers["X-Mtpd-Profile"] == model


async def unloaded(running: Daemon) -> list[str]:
    """What was unloaded, in any life, and why; oldest first."""
    found = await running.control.decisions(subject=None, limit=50)
    return [one.reason for one in found if one.act == "unload"][::-1]


async def need(running: Daemon, name: str) -> NeedView:
    model = await running.control.model(name)
    assert model is not None
    assert model.need is not None
    return model.need


async def held(running: Daemon) -> dict[str, NeedView]:
    status = await running.control.status()
    return {one.arm.profile: one.held for one in status.memory if one.held is not None}


async def lives(place: Home, machine: Path, unit: str) -> None:
    """Two lives of a daemon: in the first one what is needed is not known beforehand."""
    async with daemon_at(place, machine=machine) as (running, client):
        assert (await need(running, "alpha")).source == "unknown"
        await ask(client, "alpha", "beta")
        (reason,) = await unloaded(running)
        assert reason.startswith("alpha is unloaded: beta@0 is not loaded beside others: what it")
        assert (await need(running, "alpha")).source == "measured", "it was loaded once"
        await ask(client, "alpha", "beta")
        assert len(await unloaded(running)) == 1, "both run now"
        before = await held(running)
    async with daemon_at(place, machine=machine) as (running, client):
        for name in ("alpha", "beta"):
            assert (await need(running, name)).source == "measured"
        await ask(client, "alpha", "beta", "alpha", "beta")
        engines = (await running.control.status()).engines
        assert {one.profile: (one.state, one.starts) for one in engines} == {
            "alpha": ("ready", 1),
            "beta": ("ready", 1),
        }
        assert len(await unloaded(running)) == 1, f"{unit}: nothing was unloaded in this life"
        now = await held(running)
    assert before.keys() == now.keys() == {"alpha", "beta"}
    for name, seen in now.items():
        assert seen.source == "measured"
        assert seen.count_bytes is not None
        assert seen.count_bytes > 1 * MIB, name


async def test_on_a_card_the_bytes_of_the_card_are_remembered(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    tree.write(f"{sysfs.device()}/mem_info_vram_total", f"{40_000 * MIB}\n")  # room for two
    async with on_card(tree.root) as place:
        await lives(place, tree.root, "card")


@pytest.mark.real_engine
async def test_without_a_card_what_the_real_engines_hold_is_remembered(tmp_path: Path) -> None:
    async with home() as place:
        write_config(place, binary="embedded", model=bundled_model("tiny-chained.gguf"))
        unforecast(place)
        await lives(place, tmp_path, "host")


async def test_what_was_measured_of_another_context_is_void(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    async with on_card(tree.root) as place:
        async with daemon_at(place, machine=tree.root) as (running, client):
            await ask(client, "alpha")
            assert (await need(running, "alpha")).source == "measured"
        place.config.write_text(
            place.config.read_text().replace("context = 2048", "context = 1024")
        )
        async with daemon_at(place, machine=tree.root) as (running, client):
            assert (await need(running, "alpha")).source == "unknown"


async def test_what_is_declared_lets_the_first_start_beside_others(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    async with home(Script(device=Device(), machine=str(tree.root))) as place:
        unforecast(place, "vram_mib = 40")
        async with daemon_at(place, machine=tree.root) as (running, client):
            told = await need(running, "beta")
            assert (told.count_bytes, told.source) == (40 * MIB, "declared")
            await ask(client, "alpha", "beta")
            assert await unloaded(running) == []


@pytest.mark.real_engine
async def test_an_encoder_is_loaded_beside_a_chat_model_from_the_first_time(
    tmp_path: Path,
) -> None:
    encoder = write_bert(tmp_path / "bert.gguf")
    async with home() as place:
        write_config(place, binary="embedded", model=bundled_model("tiny-chained.gguf"))
        embeds = f'\n[models.vectors]\nmodel = "{encoder}"\ncontext = 512\npurpose = "embedding"\n'
        group = '[groups.vectors]\nmembers = ["vectors"]\nexclusive = false\n'
        place.config.write_text(place.config.read_text() + embeds + group + BESIDE)
        async with daemon_at(place, machine=tmp_path) as (running, client):
            assert (await need(running, "vectors")).source == "bound"
            await ask(client, "alpha")
            body = {"model": "vectors", "input": "ab c"}
            async with client.post("/v1/embeddings", json=body) as response:
                assert response.status == 200, await response.text()
            assert await unloaded(running) == []
            told = await held(running)
            assert told.keys() == {"alpha", "vectors"}
            bound, seen = await need(running, "vectors"), told["vectors"]
            assert bound.source == seen.source == "measured", "its start was measured meanwhile"
