"""A whole daemon on a fake card: what it remembers of its requests, and what its engine said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from tests.fakes import sysfs
from tests.fakes.house import daemon_at, home, run_operation
from tests.fakes.patience import SOON_S
from tests.fakes.script import Device, Script

if TYPE_CHECKING:
    from pathlib import Path

    import aiohttp

pytestmark = pytest.mark.slow

ASK = {"model": "alpha", "prompt": "x", "n_predict": 60, "stream": True}


async def series(client: aiohttp.ClientSession) -> dict[tuple[str, int | None], list[Any]]:
    """The means by metric and position, without the gaps."""
    async with client.get("/mtpd/v1/history?since_s=600") as reply:
        found = (await reply.json())["series"]
    return {
        (one["metric"], one["position"]): [mean for mean in one["mean"] if mean is not None]
        for one in found
    }


async def test_a_reply_is_found_in_the_history_with_its_speed_energy_and_acceptance(
    tmp_path: Path,
) -> None:
    tree = sysfs.build(tmp_path, "idle")
    script = Script(device=Device(), machine=str(tree.root), realtime=True, tps0=15.0)
    async with home(script) as place, daemon_at(place, machine=tree.root) as (running, client):
        asked = await running.control.switch(
            model="alpha", depth=2, force=False, idempotency_key=None
        )
        assert (await run_operation(running, asked)).state == "done"
        async with client.post("/completion", json=ASK) as reply:
            await reply.read()
        wanted = {("decode_tps", None), ("joules_per_token", None), ("acceptance", 2)}
        with anyio.fail_after(SOON_S):
            while not wanted <= set(found := await series(client)):  # noqa: ASYNC110  # no event
                await anyio.sleep(0.05)
        assert found["decode_tps", None][0] > 0
        assert found["joules_per_token", None][0] > 0
        assert 0 < found["acceptance", 2][0] <= 1
        assert max(found["stream_tps", None]) > 0, "it was seen while it ran"
        assert max(found["requests_in_flight", None]) > 0
        assert found["edge_c", None][-1] == 38.0

        (engine,) = (await running.control.status()).engines
        async with client.get("/mtpd/v1/logs?model=alpha&about=residency") as reply:
            lines = (await reply.json())["lines"]
        quoted = {one.line for one in engine.residency.evidence}
        assert {one["text"] for one in lines} & quoted, "the verdict's lines are among them"
        assert {one["engine_id"] for one in lines} == {engine.id}
        assert {one["profile"] for one in lines} == {"alpha"}
