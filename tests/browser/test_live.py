"""The dashboard follows the daemon: through its restart, and without asking all the time."""

from __future__ import annotations

import json
import re
import time

import pytest
from playwright.async_api import expect

from mtpd.listen import free_port
from tests.browser.chromium import dashboard
from tests.browser.doing import switch
from tests.fakes.house import daemon_at, home, run_operation

pytestmark = [pytest.mark.browser, pytest.mark.slow]


async def test_the_page_is_right_again_after_the_daemon_was_restarted() -> None:
    async with home() as place:
        port = free_port()
        place.config.write_text(place.config.read_text().replace(":0", f":{port}"))
        async with daemon_at(place) as (running, _):
            await switch(running, "alpha", 2)
            opened = dashboard(running.url, quiet=False)
            seen = await opened.__aenter__()
            page = seen.page
            await seen.live()
            await expect(page.locator("#served-depth")).to_have_text("2")
        try:
            await expect(page.locator("#link")).to_have_attribute("data-state", "lost")
            await expect(page.locator("#link")).to_contain_text("trying again")
            async with daemon_at(place) as (running, _):
                await seen.live()
                await expect(page.locator("#banner")).to_contain_text("No model runs")
                await switch(running, "beta", 1)
                await expect(page.locator("#served-depth")).to_have_text("1")
                await expect(page.locator("#banner .verdict")).to_contain_text("beta at depth 1")
        finally:
            await opened.__aexit__(None, None, None)


EVENTS_OF = """
async (text) => {
  const page = document.querySelector("script[type=module]").src;
  const { eventsOf } = await import(page.replace("app.js", "lib/sse.js"));
  const found = [];
  for await (const one of eventsOf(new Response(text))) found.push([one.event, one.id, one.data]);
  return found;
}
"""


async def test_an_event_holds_whatever_json_may_hold() -> None:
    async with home() as place, daemon_at(place) as (running, _):
        async with dashboard(running.url) as seen:
            sent = json.dumps("a\u2028b\u2029c\x85d: e", ensure_ascii=False)
            text = f": ping\n\nid: 7\r\nevent: log.lines\r\ndata: {sent}\r\n\r\ndata:x\ndata: y\n\n"
            assert await seen.page.evaluate(EVENTS_OF, text) == [
                ["message", None, ""],
                ["log.lines", "7", sent],
                ["message", None, "x\ny"],
            ]


async def test_a_swarm_of_events_is_answered_by_few_readings() -> None:
    async with home() as place, daemon_at(place) as (running, client):
        await switch(running, "alpha", 1)
        async with dashboard(running.url) as seen:
            await seen.live()
            await expect(seen.page.locator("#served-depth")).to_have_text("1")
            before, began = seen.count("/mtpd/v1/status"), time.monotonic()
            for _ in range(60):
                body = {"model": "alpha", "prompt": "x", "n_predict": 3}
                async with client.post("/completion", json=body) as reply:
                    assert reply.status == 200
            await expect(seen.page.locator("#glance")).to_contain_text("last request")
            read = seen.count("/mtpd/v1/status") - before
            assert read <= 2 + (time.monotonic() - began), "at most about one in a second"
            assert seen.count("/mtpd/v1/events") == 1


async def test_a_measurement_shows_its_progress_and_then_the_curve_and_the_reason() -> None:
    async with home() as place, daemon_at(place) as (running, _):
        async with dashboard(running.url) as seen:
            page = seen.page
            await seen.live()
            await expect(page.locator("#depth")).to_contain_text("was not measured yet")
            await expect(page.locator("#acceptance")).to_contain_text("No model runs")
            asked = await running.control.tune(
                subject="alpha",
                method="sweep",
                depths=None,
                workloads=None,
                prompts=1,
                repetitions=1,
                max_tokens=96,
                apply=True,
                idempotency_key=None,
            )
            await expect(page.locator("#models progress")).to_be_visible()
            await expect(page.locator("#why")).to_contain_text("It is being measured: ")
            assert (await run_operation(running, asked)).state == "done"
            await expect(page.locator("#models progress")).to_have_count(0)
            (model, _) = await running.control.models()
            assert model.choice is not None
            await expect(page.locator("#why")).to_have_text(model.choice.reason)
            await expect(page.locator("#cost")).to_contain_text("for alpha, took")
            await expect(page.locator("#cost")).to_contain_text("engine starts, ")
            await expect(page.locator("#cost time")).to_be_visible()
            assert "[object" not in await page.locator("body").inner_text()
            curve = page.locator("#depth .chart")
            # The models are read again on their own: the curve comes with them.
            await expect(curve).to_have_attribute("aria-label", re.compile(", chosen"))
            label = str(await curve.get_attribute("aria-label"))
            assert label.count("tok/s") == len(model.depths) == 4
            said = re.findall(r"depth (\d+): [\d.,]+ tok/s, chosen", label)
            assert said == [str(model.choice.arm.depth)]
            rows = await page.locator("#depth tbody tr").all_text_contents()
            chosen = [row for row in rows if "chosen" in row]
            assert [row[0] for row in chosen] == [str(model.choice.arm.depth)]
            deepest = max(model.depths, key=lambda row: len(row.acceptance))
            shown = (
                await page.locator("#acceptance tbody tr").first.locator("b").all_text_contents()
            )
            assert shown == [f"{one.alpha.mid:.2f}" for one in deepest.acceptance]
            # An operator's depth hides neither: what serves, and what the measurements chose.
            best = model.choice.arm.depth
            other = 0 if best else 1
            await switch(running, "alpha", other)
            await expect(page.locator("#depth tbody tr").nth(other)).to_contain_text("serves")
            await expect(page.locator("#depth tbody tr").nth(best)).to_contain_text("chosen")
            await expect(page.locator("#glance")).to_contain_text(f"measured: depth {best}")
