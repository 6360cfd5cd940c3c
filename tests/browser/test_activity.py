"""What goes on, on the dashboard: history, queue, decisions and logs, in a real browser."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest
from playwright.async_api import expect

from mtpd.listen import free_port
from tests.browser.chromium import dashboard
from tests.browser.doing import switch
from tests.fakes import sysfs
from tests.fakes.house import daemon_at, home, run_operation, write_config
from tests.fakes.script import Device, Script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import aiohttp
    from playwright.async_api import Locator

    from mtpd.app import Daemon

pytestmark = [pytest.mark.browser, pytest.mark.slow]

STREAM = {"model": "alpha", "prompt": "x", "n_predict": 2000, "stream": True}


async def measured(running: Daemon) -> None:
    """Have a decision with everything that it stands on."""
    asked = await running.control.tune(
        subject="alpha",
        method="sweep",
        depths=(0, 2),
        workloads=None,
        prompts=1,
        repetitions=3,
        max_tokens=96,
        apply=True,
        idempotency_key=None,
    )
    assert (await run_operation(running, asked)).state == "done"


def kept(running: Daemon, *about: str) -> list[str]:
    """What the daemon keeps of lines that are evidence."""
    return [line.text for line in running.control.feed().kept(lambda _: True, {*about})[1]]


# Decisions ----------------------------------------------------------------------------


async def test_a_decision_opens_by_the_keyboard_with_all_that_it_stands_on() -> None:
    async with home() as place, daemon_at(place) as (running, _):
        async with dashboard(running.url) as seen:
            page = seen.page
            await seen.live()
            await expect(page.locator("#decisions")).to_contain_text("Nothing was decided yet")
            says = (
                "Power, the edge temperature and the junction temperature are not known: there is"
            )
            await expect(page.locator("#history")).to_contain_text(says)
            await measured(running)
            (made,) = await running.control.decisions(subject="alpha", limit=1)
            entry = page.locator("#decisions button.entry").first
            await expect(entry).to_contain_text(made.reason)
            await entry.focus()
            await page.keyboard.press("Enter")
            box = page.get_by_role("dialog")
            await expect(box.locator(".lead")).to_have_text(made.reason)
            explained = await running.control.explain(made.id, None)
            steps = box.get_by_role("heading", name="How it follows").locator("xpath=..")
            assert await steps.locator("li").all_text_contents() == list(explained.chain)
            for row in explained.rows:
                await expect(box).to_contain_text(f"alpha@{row.arm.depth}")

            number = made.measurement_ids[-1]
            link = box.get_by_role("link", name=f"#{number}", exact=True).last
            await link.focus()
            await page.keyboard.press("Enter")
            target = box.locator(f"#m-{number}")
            await expect(target).to_be_focused()
            await expect(target).to_be_visible()
            assert await box.locator("tbody th[id]").count() == len(explained.measurements)
            await page.keyboard.press("Escape")
            await expect(box).to_have_count(0)
            await expect(entry).to_be_focused()


# Logs ---------------------------------------------------------------------------------


@pytest.mark.real_engine
async def test_evidence_is_marked_and_found_beneath_a_flood_of_lines() -> None:
    async with home() as place:
        write_config(place, binary="embedded")
        async with daemon_at(place) as (running, _), dashboard(running.url) as seen:
            page, log = seen.page, seen.page.locator("#logs .log li")
            await seen.live()
            await switch(running, "alpha", 2)
            residency = page.locator("#logs .log li[data-about=residency]")
            expected = kept(running, "residency")
            assert any("KV buffer size" in line for line in expected)
            await expect(residency).to_have_count(len(expected))
            await expect(residency.first.locator(".mark")).to_have_text("residency ")

            running.control.feed().add("alpha", [f"noise {number}" for number in range(2000)])
            await expect(log.filter(has_text="noise 1999")).to_be_visible()
            await expect(residency).to_have_count(0)
            assert await log.count() <= 800, "the page does not grow without bound"

            await page.get_by_label("Which lines").select_option(label="Residency")
            await expect(residency).to_have_count(len(expected))
            shown = await log.locator(".text").all_text_contents()
            assert shown == [f"residency {line}" for line in expected]
            await page.get_by_label("Whose lines").select_option(label="The daemon")
            await expect(page.locator("#logs")).to_contain_text("No such line yet.")


async def test_a_pause_holds_the_lines_back_and_loses_none() -> None:
    async with home() as place, daemon_at(place) as (running, _):
        async with dashboard(running.url) as seen:
            page, feed = seen.page, running.control.feed()
            await seen.live()
            bad = "<img src=x onerror=alert(1)><script>alert(2)</script>"
            feed.add("alpha", [bad, "before"])
            log = page.locator("#logs .log li")
            await expect(log.filter(has_text="before")).to_be_visible()
            pause = page.locator("#logs").get_by_role("button")
            await pause.focus()
            await page.keyboard.press("Enter")
            feed.add("alpha", written := ["one", "0.00.000.001 E two"])
            await expect(page.locator("#logs")).to_contain_text("Paused: ")
            two = log.filter(has_text="E two")
            await expect(two).to_have_count(0)
            await page.keyboard.press("Enter")
            await expect(two).to_be_visible()
            await expect(two).to_have_attribute("data-level", "error")
            mine = [text for text in await texts(log) if text in {"before", *written}]
            assert mine == ["before", *written]
            await expect(log.filter(has_text=bad)).to_have_count(1)
            assert await page.locator("#logs img").count() == 0, "what an engine prints is text"


async def texts(log: Locator) -> list[str]:
    return await log.locator(".text").all_text_contents()


# The queue ----------------------------------------------------------------------------


async def test_streams_are_seen_while_they_run_and_others_while_they_wait() -> None:
    async with (
        home(Script(realtime=True, tps0=20.0)) as place,
        daemon_at(place) as (running, client),
    ):
        await switch(running, "alpha", 0)
        async with dashboard(running.url) as seen:
            queue = seen.page.locator("#queue")
            await seen.live()
            await expect(queue).to_contain_text("Nobody is being served.")
            async with stream(client):
                running_row = queue.locator("tbody tr", has_text="running at depth 0")
                await expect(running_row).to_contain_text("tok/s")
                async with stream(client, **{"X-Mtpd-Priority": "high"}):
                    await expect(queue).to_contain_text("1 running, 1 of 64 waiting")
                    waiting_row = queue.locator("tbody tr", has_text="waiting")
                    await expect(waiting_row).to_contain_text("high")
                    first, second = (await running.control.status()).requests
                    assert first.events_per_s is not None
                    assert (second.state, second.events) == ("waiting", None)
            await expect(queue).to_contain_text("Nobody is being served.")


@asynccontextmanager
async def stream(client: aiohttp.ClientSession, **headers: str) -> AsyncIterator[None]:
    """A request that is open while the block runs."""

    async def ask() -> None:
        async with client.post("/completion", json=STREAM, headers=headers) as response:
            await response.read()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        yield
        tasks.cancel_scope.cancel()


# History ------------------------------------------------------------------------------


async def test_the_history_has_the_card_with_its_cap_and_its_gate(tmp_path: Path) -> None:
    tree = sysfs.build(tmp_path, "idle")
    async with home(Script(device=Device(), machine=str(tree.root))) as place:
        text = place.config.read_text() + '[budget]\nhardware = "gfx906-16g-150w"\n'
        place.config.write_text(text)
        async with daemon_at(place, machine=tree.root) as (running, _):
            await running.control.gpu()
            async with dashboard(running.url) as seen:
                await seen.live()
                history = seen.page.locator("#history")
                heat = history.get_by_role("img", name="Power and temperature: power, W between")
                await expect(heat).to_be_visible()
                says = str(await heat.get_attribute("aria-label"))
                assert "declared cap at 150 W" in says
                assert "gate at 44 °C" in says
                assert "edge, °C between 38 °C and 38 °C" in says
                await expect(history).to_contain_text(
                    "The energy of a token is not known: no reply"
                )
                await history.get_by_label("How far back").select_option("24 h")
                await expect(heat).to_be_visible()
                asked = [url for url in seen.asked if "/history?" in url]
                assert "since_s=86400" in asked[-1]


COUNT_CANVASES = """() => {
  const make = document.createElement.bind(document);
  globalThis.made = 0;
  document.createElement = (name, ...more) => {
    if (name === "canvas") globalThis.made += 1;
    return make(name, ...more);
  };
}"""


async def test_a_drawing_that_got_another_line_is_drawn_once_in_a_new_theme() -> None:
    async with home() as place, daemon_at(place) as (running, client):
        async with dashboard(running.url) as seen:
            page = seen.page
            await seen.live()
            speed = page.locator("#history").get_by_role("img")
            await expect(speed).to_have_attribute("aria-label", re.compile("streams, events/s"))
            async with client.post("/completion", json=STREAM) as reply:
                await reply.read()
            await page.get_by_label("How far back").select_option("1 h")
            await expect(speed).to_have_attribute("aria-label", re.compile("replies, tok/s"))
            await page.evaluate(COUNT_CANVASES)
            await page.get_by_role("button", name="Theme").click()
            made = await page.evaluate("globalThis.made")
            assert made == await page.locator("canvas").count() > 0


# The daemon's restart -----------------------------------------------------------------


async def test_everything_goes_on_after_the_daemon_was_restarted() -> None:
    async with home() as place:
        text = place.config.read_text()
        place.config.write_text(text.replace(":0", f":{free_port()}"))
        async with daemon_at(place) as (running, _):
            await switch(running, "alpha", 2)
            opened = dashboard(running.url, quiet=False)
            seen = await opened.__aenter__()
            log = seen.page.locator("#logs .log li")
            await seen.live()
            running.control.feed().add("alpha", ["of the first life"])
            await expect(log.filter(has_text="of the first life")).to_be_visible()
        try:
            await expect(seen.page.locator("#link")).to_have_attribute("data-state", "lost")
            async with daemon_at(place) as (running, _):
                await seen.live()
                running.control.feed().add("beta", ["of the second life"])
                await expect(log.filter(has_text="of the second life")).to_be_visible()
                await expect(seen.page.locator("#logs .gap")).to_have_count(1)
                found = await texts(log.filter(has_not=seen.page.locator(".gap")))
                assert found.count("of the first life") == 1
                await measured(running)
                (made,) = await running.control.decisions(subject="alpha", limit=1)
                entry = seen.page.locator("#decisions button.entry").first
                await expect(entry).to_contain_text(made.reason)
        finally:
            await opened.__aexit__(None, None, None)
