"""What the dashboard may do: on the rules of the API, and said before anybody is refused."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from mtpd.access import Scope
from tests.browser.chromium import dashboard
from tests.browser.doing import served, switch, token
from tests.fakes.house import daemon_at, home

REFUSED = "A token is needed to see this."

pytestmark = [pytest.mark.browser, pytest.mark.slow]


async def test_where_only_the_socket_may_write_a_button_says_the_command_that_does_the_same() -> (
    None
):
    async with home() as place, daemon_at(place) as (running, _):
        await switch(running, "alpha", 2)
        async with dashboard(running.url) as seen:
            page = seen.page
            await seen.live()
            await expect(page.locator("#models .notice")).to_contain_text("control socket")
            for name in ("Switch to beta", "Tune pool both", "Unload alpha", "Load beta"):
                button = page.get_by_role("button", name=name)
                await expect(button).to_have_attribute("aria-disabled", "true")
            await page.get_by_label("Depth for alpha").select_option("1")
            for name, command in (
                ("Switch to alpha", "mtpctl switch alpha --depth 1"),
                ("Tune pool both", "mtpctl tune both"),
                ("Unload alpha", "mtpctl unload alpha"),
                ("Load beta", "mtpctl load beta"),
            ):
                await page.get_by_role("button", name=name).click(force=True)
                box = page.get_by_role("dialog")
                await expect(box.locator("code")).to_have_text(command)
                await page.keyboard.press("Escape")
                await expect(box).to_have_count(0)
            assert await running.control.operations(10) == (await running.control.operations(1)), (
                "nothing but our own switch was started"
            )
            assert (await served(running))[:2] == ("alpha", 2)


async def test_a_token_is_asked_for_and_what_is_wrong_with_one_is_said() -> None:
    async with home() as place:
        eyes = token(place, "eyes", Scope.READ)
        async with daemon_at(place) as (running, _):
            await switch(running, "alpha", 1)
            async with dashboard(running.url, quiet=False) as seen:
                page = seen.page
                await expect(page.locator("#link")).to_have_attribute("data-state", "forbidden")
                await expect(page.locator("#banner")).to_contain_text("to who has a token")
                for panel in (
                    "glance",
                    "queue",
                    "vram",
                    "acceptance",
                    "models",
                    "depth",
                    "history",
                ):
                    await expect(page.locator(f"#{panel} .empty")).to_have_text(REFUSED)
                await expect(page.locator("#decisions .empty")).to_have_text(REFUSED)
                await expect(page.get_by_text("Waiting for the daemon")).to_have_count(0)
                await page.keyboard.press("Escape")  # the field that is offered by itself
                await page.get_by_role("button", name="Enter a token").click()
                assert seen.count("/mtpd/v1/status") == 0, "nothing else is asked in vain"
                await page.get_by_label("Access token").fill(eyes[:-1])
                await page.get_by_role("button", name="Use it").click()
                await expect(page.get_by_role("alert")).to_contain_text("checksum")
                await page.get_by_role("button", name="Access", exact=True).click()
                await page.get_by_label("Access token").fill(eyes)
                await page.get_by_label("Access token").press("Enter")
                await seen.live()
                await expect(page.locator("#served-depth")).to_have_text("1")
                await expect(page.locator("#logs li").first).to_be_visible()
                # It reads; the buttons say what they lack.
                button = page.get_by_role("button", name="Switch to beta")
                await expect(button).to_have_attribute("aria-disabled", "true")
                await button.click(force=True)
                await expect(page.get_by_role("dialog")).to_contain_text("scope admin")
                await page.keyboard.press("Escape")
                # Once the token is forgotten nothing is shown any more.
                await page.get_by_role("button", name="Access: token eyes").click()
                await page.get_by_role("button", name="Forget the token").click()
                await expect(page.locator("#link")).to_have_attribute("data-state", "forbidden")
                await expect(page.locator("#banner")).to_contain_text("to who has a token")
                for panel in ("decisions", "history"):
                    await expect(page.locator(f"#{panel} .empty")).to_have_text(REFUSED)
                await expect(page.locator("#history canvas").first).to_be_hidden()
                await expect(page.locator("#logs li")).to_have_count(0)
