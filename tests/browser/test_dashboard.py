"""The dashboard in a real browser, over a daemon whose real engine runs the tiny model."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from mtpd.access import Scope
from tests.browser.chromium import dashboard
from tests.browser.doing import served, switch, token
from tests.fakes.house import daemon_at, home, write_config

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.real_engine]


async def test_the_page_shows_the_model_the_depth_and_the_verdict_with_its_evidence() -> None:
    async with home() as place:
        write_config(place, binary="embedded")
        async with daemon_at(place) as (running, _):
            await switch(running, "alpha", 2)
            assert await served(running) == ("alpha", 2, "host")
            async with dashboard(running.url) as seen:
                page = seen.page
                await seen.live()
                verdict = page.locator("#banner .verdict")
                await expect(verdict).to_have_attribute("data-verdict", "host")
                await expect(verdict).to_contain_text("alpha at depth 2")
                await expect(page.locator("#served-depth")).to_have_text("2")
                await expect(page).to_have_title("alpha@2 · mtpd")
                (engine,) = (await running.control.status()).engines
                quoted = await verdict.locator("q").all_text_contents()
                assert quoted == [one.line for one in engine.residency.evidence]
                assert quoted, "the verdict rests on something"
                (choice,) = [
                    one
                    for one in (await running.control.status()).choices
                    if one.subject == "alpha"
                ]
                await expect(page.locator("#why")).to_have_text(choice.reason)
                await expect(page.locator("#vram")).to_contain_text("There is no card")
                # Another client's switch is seen, too.
                await switch(running, "alpha", 0)
                await expect(page.locator("#served-depth")).to_have_text("0")
                await expect(page.locator("#acceptance")).to_contain_text("Nothing was drafted")


async def test_a_switch_on_the_page_is_seen_there_and_at_the_api_and_the_chat_says_its_depth() -> (
    None
):
    async with home() as place:
        write_config(place, binary="embedded")
        secret = token(place, "ops", Scope.ADMIN, Scope.INFER)
        async with daemon_at(place) as (running, _):
            await switch(running, "alpha", 0)
            async with dashboard(running.url, quiet=False) as seen:
                page = seen.page
                await page.get_by_label("Access token").fill(secret)
                await page.get_by_role("button", name="Use it").click()
                await seen.live()
                await expect(page.locator("#access")).to_have_text("Access: token ops")
                await expect(page.locator("#served-depth")).to_have_text("0")
                await page.get_by_label("Depth for alpha").select_option("1")
                await page.get_by_role("button", name="Switch to alpha").click()
                await expect(page.locator("#served-depth")).to_have_text("1")
                await expect(page.get_by_text("switch to alpha: done")).to_be_visible()
                assert (await served(running))[:2] == ("alpha", 1)

                await page.get_by_label("Model to talk to").select_option("alpha")
                await page.get_by_role("textbox", name="Message").fill("abab")
                await page.get_by_role("textbox", name="Message").press("Enter")
                made = page.locator("#chat .made")
                await expect(made).to_contain_text(re.compile(r"alpha · depth 1 · [\d.,]+ tok/s"))
                assert await page.locator("#chat .turn.model p").first.text_content() != "…"
                await expect(page.locator("#glance")).to_contain_text("last request")
                await page.get_by_role("button", name="Unload alpha").click()
                await expect(page.locator("#banner")).to_contain_text("No model runs")
                # The token is nowhere but in the memory of the page.
                kept = "JSON.stringify([localStorage, sessionStorage, document.cookie])"
                assert secret not in str(await page.evaluate(kept))
                assert not [url for url in seen.asked if secret in url]
