"""A database that is lost: the daemon still serves each model at the depth that was chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.store.snapshot import SnapshotFile
from mtpd.types import Absent
from tests.fakes.binary import fake_binary
from tests.fakes.house import daemon_at, home, run_operation, until, write_config
from tests.fakes.script import Script

if TYPE_CHECKING:
    from mtpd.app import Daemon
    from mtpd.views import ChoiceView
    from tests.fakes.house import Home

pytestmark = pytest.mark.slow

CHEAP_ROWS = Script(acceptance=(0.95, 0.9, 0.9), row_cost=0.02, tps0=50.0)


async def _tune(running: Daemon) -> None:
    asked = await running.control.tune(
        subject="both",
        method="sweep",
        depths=(0, 3),
        workloads=("short",),
        prompts=2,
        repetitions=1,
        max_tokens=64,
        apply=True,
        idempotency_key=None,
    )
    ended = await run_operation(running, asked)
    assert ended.state == "done", ended.error


async def _choices(running: Daemon) -> dict[str, ChoiceView]:
    return {one.subject: one for one in (await running.control.status()).choices}


def _damage(place: Home) -> None:
    path = place.directories.state / "mtpd.sqlite3"
    content = bytearray(path.read_bytes())
    content[:100] = bytes(100)
    path.write_bytes(content)


async def _chosen(place: Home) -> dict[str, ChoiceView]:
    """Tune, and wait until the snapshot has what was chosen."""
    write_config(place, binary=str(fake_binary(place.root / "llama-server", CHEAP_ROWS)))
    file = SnapshotFile(place.directories.state)
    async with daemon_at(place) as (running, _client):
        await _tune(running)
        chosen = {name: one for name, one in (await _choices(running)).items() if one.measured}
        assert chosen
        assert any(one.arm.depth == 3 for one in chosen.values())

        def kept(_status: object) -> bool:
            found = file.read()
            return not isinstance(found, Absent) and {one.subject for one in found} == set(chosen)

        await until(running, kept)
    return chosen


async def test_the_chosen_depths_outlive_the_database_and_every_later_start() -> None:
    async with home() as place:
        chosen = await _chosen(place)
        _damage(place)
        for start in range(2):
            async with daemon_at(place) as (running, _client):
                found = await _choices(running)
                for name, before in chosen.items():
                    after = found[name]
                    assert (after.arm, after.measured) == (before.arm, True)
                    assert "was damaged and set aside as mtpd.sqlite3.corrupt-" in after.reason
                    assert after.reason.endswith(before.reason)
                decisions = await running.control.decisions(subject=None, limit=100)
                assert {(one.act, one.subject) for one in decisions} == {
                    ("keep", name) for name in chosen
                }, start
        assert len(list(place.directories.state.glob("mtpd.sqlite3.corrupt-*"))) >= 1


async def test_a_snapshot_of_another_fingerprint_is_not_served() -> None:
    async with home() as place:
        chosen = await _chosen(place)
        _damage(place)
        text = place.config.read_text()
        place.config.write_text(text.replace("context = 2048", "context = 1024"))
        async with daemon_at(place) as (running, _client):
            found = await _choices(running)
            assert not any(found[name].measured for name in chosen)
            assert await running.control.decisions(subject=None, limit=1) == ()
