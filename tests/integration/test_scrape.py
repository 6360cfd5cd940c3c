"""``GET /metrics`` of a whole daemon without a card: also while its database is in trouble."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mtpd.errors import StoreError
from tests.fakes.house import daemon_at, home, run_operation, write_config

if TYPE_CHECKING:
    import sqlite3

    import aiohttp

pytestmark = pytest.mark.slow


async def scraped(client: aiohttp.ClientSession) -> list[str]:
    async with client.get("/metrics") as reply:
        assert reply.status == 200, await reply.text()
        return (await reply.text()).splitlines()


async def test_a_write_that_fails_is_shown_until_one_succeeds() -> None:
    async with home() as place, daemon_at(place) as (running, client):
        store = running.control._p.journal._db
        assert "mtpd_database_degraded 0.0" in await scraped(client)

        def broken(conn: sqlite3.Connection) -> None:
            conn.execute("INSERT INTO nowhere VALUES (1)")

        with pytest.raises(StoreError):
            await store.write(broken)
        assert "mtpd_database_degraded 1.0" in await scraped(client)
        await store.write(lambda _conn: None)
        assert "mtpd_database_degraded 0.0" in await scraped(client)


async def test_a_scrape_asks_nothing_of_the_database() -> None:
    async with home() as place, daemon_at(place) as (running, client):
        store, asked = running.control._p.journal._db, list[str]()
        await store.read(lambda conn: conn.set_trace_callback(asked.append))
        await running.control.status()
        assert asked, "the trace works"
        asked.clear()
        await scraped(client)
        assert [one for one in asked if "decisions" in one] == []


async def test_without_a_card_there_are_no_gauges_of_one() -> None:
    async with home() as place, daemon_at(place) as (_running, client):
        lines = await scraped(client)
    names = {line.partition("{")[0].partition(" ")[0] for line in lines if line[0] != "#"}
    assert {name for name in names if name.startswith("mtpd_gpu_")} == {
        "mtpd_gpu_info",
        "mtpd_gpu_state",
    }
    assert {"mtpd_host_memory_available_bytes", "mtpd_process_start_time_seconds"} <= names
    assert not [name for name in names if name.endswith("_created")]


@pytest.mark.real_engine
async def test_a_real_engine_that_drafts_has_its_acceptance_by_position() -> None:
    async with home() as place:
        write_config(place, binary="embedded")
        async with daemon_at(place) as (running, client):
            asked = await running.control.switch(
                model="alpha", depth=2, force=False, idempotency_key=None
            )
            assert (await run_operation(running, asked)).state == "done"
            body = {"model": "alpha", "prompt": "one two three", "n_predict": 24}
            body |= {"temperature": 0, "ignore_eos": True}
            async with client.post("/completion", json=body) as reply:
                assert reply.status == 200, await reply.text()
                generated = (await reply.json())["tokens_predicted"]
            found: dict[tuple[str, str], float] = {}
            with anyio.fail_after(60):  # the engine's counters are read once the request is over
                while found.get(("mtpd_position_accepted_tokens_total", "1"), 0) == 0:
                    await anyio.sleep(0.05)
                    found = samples("\n".join(await scraped(client)))
    steps = found["mtpd_draft_steps_total", ""]
    first, second = (found["mtpd_position_accepted_tokens_total", one] for one in "12")
    assert steps >= first >= second
    # The engine counts what the daemon's own request before the first one did, too.
    assert 0 < found["mtpd_accepted_tokens_total", ""] <= first + second
    assert found["mtpd_drafted_tokens_total", ""] >= found["mtpd_accepted_tokens_total", ""]
    assert found["mtpd_generated_tokens_total", ""] == generated > 0
    assert found["mtpd_switch_duration_seconds_count", ""] == 1


def samples(text: str) -> dict[tuple[str, str], float]:
    """Samples by name and position."""
    return {
        (sample.name, sample.labels.get("position", "")): sample.value
        for family in text_string_to_metric_families(f"{text}\n")
        for sample in family.samples
    }
