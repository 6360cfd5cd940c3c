"""The dashboard for everybody: axe's rules, the phone, the keyboard, the theme."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from mtpd.units import MIB
from tests.browser.chromium import dashboard
from tests.fakes import sysfs
from tests.fakes.house import daemon_at, home, run_operation
from tests.fakes.script import Device, Script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import Page, ViewportSize

    from mtpd.app import Daemon

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PHONE: Final[ViewportSize] = {"width": 390, "height": 844}


@asynccontextmanager
async def on_a_card(tmp_path: Path) -> AsyncIterator[Daemon]:
    """A daemon with something in every panel: a card, a measured model, and traffic."""
    tree = sysfs.build(tmp_path, "idle")
    async with home(Script(device=Device(), machine=str(tree.root))) as place:
        place.config.write_text(
            place.config.read_text() + '[budget]\nhardware = "gfx906-16g-150w"\n'
        )
        async with daemon_at(place, machine=tree.root) as (running, client):
            asked = await running.control.probe(model="alpha", depth=2, idempotency_key=None)
            assert (await run_operation(running, asked)).state == "done"
            asked = await running.control.switch(
                model="alpha", depth=2, force=False, idempotency_key=None
            )
            assert (await run_operation(running, asked)).state == "done"
            body = {"model": "alpha", "prompt": "x", "n_predict": 30}
            async with client.post("/completion", json=body) as reply:
                assert reply.status == 200
            yield running


async def violations(page: Page) -> list[str]:
    """What axe calls serious or critical, as one line per element."""
    found: list[dict[str, Any]] = (await Axe().run(page)).response["violations"]
    return [
        f"{one['id']}: {node['html'][:120]}"
        for one in found
        if one["impact"] in {"serious", "critical"}
        for node in one["nodes"]
    ]


async def test_axe_finds_nothing_serious_and_nothing_is_wider_than_a_phone(tmp_path: Path) -> None:
    width = "document.documentElement.scrollWidth"
    async with on_a_card(tmp_path) as running, dashboard(running.url) as seen:
        page = seen.page
        await seen.live()
        await expect(page.locator("#served-depth")).to_have_text("2")
        await expect(page.locator("#depth table")).to_be_visible()
        for each in await page.locator("details").all():
            await each.evaluate("node => { node.open = true; }")
        assert await violations(page) == []
        await page.emulate_media(color_scheme="dark")
        assert await violations(page) == [], "dark"
        await page.set_viewport_size(PHONE)
        assert await page.evaluate(width) <= PHONE["width"]
        assert await violations(page) == [], "dark, on a phone"
        await page.get_by_role("button", name="Tune alpha").click(force=True)
        await expect(page.get_by_role("dialog")).to_be_visible()
        assert await page.evaluate(width) <= PHONE["width"]
        assert await violations(page) == [], "with a dialog"


async def test_the_parts_of_device_memory_are_those_of_the_engines_log(tmp_path: Path) -> None:
    async with on_a_card(tmp_path) as running, dashboard(running.url) as seen:
        await seen.live()
        vram = seen.page.locator("#vram")
        await expect(vram.locator(".stack")).to_be_visible()
        (entry,) = (await running.control.status()).memory
        assert entry.printed is not None
        assert entry.printed.weights_bytes == 14_300 * MIB
        for name, text in (("Weights", "14.0 GiB"), ("KV cache", "136 MiB")):
            await expect(vram.locator(".legend li", has_text=name)).to_contain_text(text)
        await expect(vram).to_contain_text("of 16.0 GiB")
        label = str(await vram.locator(".stack").get_attribute("aria-label"))
        assert label.startswith("Weights 14.0 GiB, KV cache 136 MiB, State ")


async def test_everything_can_be_reached_and_used_by_the_keyboard() -> None:
    async with home() as place, daemon_at(place) as (running, _):
        async with dashboard(running.url) as seen:
            page = seen.page
            await seen.live()
            await expect(page.get_by_role("button", name="Load alpha")).to_be_visible()
            names = "node => node.getAttribute('aria-label') ?? node.textContent"
            reached = []
            for _ in range(60):
                await page.keyboard.press("Tab")
                reached.append(await page.locator(":focus").evaluate(names))
                if reached[-1] == "Send":
                    break
            assert reached[:3] == ["Skip to the content", "Access", "Theme: system"]
            assert {"Tune pool both", "Depth for alpha", "Load alpha", "Message"} <= set(reached)

            button = page.get_by_role("button", name="Load alpha")
            await button.focus()
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("dialog")).to_be_visible()
            await page.keyboard.press("Escape")
            await expect(button).to_be_focused()


async def test_the_theme_that_was_chosen_is_remembered() -> None:
    async with home() as place, daemon_at(place) as (running, _):
        async with dashboard(running.url, scheme="light") as seen:
            page = seen.page
            background = "getComputedStyle(document.body).backgroundColor"
            light = await page.evaluate(background)
            button = page.get_by_role("button", name="Theme")
            await button.click()
            await button.click()
            await expect(button).to_have_text("Theme: dark")
            dark = await page.evaluate(background)
            assert dark != light
            await page.reload()
            await expect(button).to_have_text("Theme: dark")
            assert await page.evaluate(background) == dark
            await button.click()
            await expect(button).to_have_text("Theme: system")
            assert await page.evaluate(background) == light
