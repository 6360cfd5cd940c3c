"""The real Chromium, headless, on the dashboard of a daemon."""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from playwright.async_api import async_playwright, expect

from tests import needs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import ConsoleMessage, Page, Request, ViewportSize

__all__ = ["Seen", "dashboard"]

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DEADLINE_MS = 30_000
"""For every condition that is waited for; a loaded machine may stand still for a while."""

DESK: Final[ViewportSize] = {"width": 1280, "height": 900}


@dataclass(slots=True)
class Seen:
    """A page, and what it did.

    Attributes:
        page: For actions and conditions.
        errors: What the console called an error, and exceptions that nobody caught.
        asked: The URL of every request.
    """

    page: Page
    errors: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def count(self, path: str) -> int:
        """How often a path was asked for."""
        return sum(urlsplit(url).path == path for url in self.asked)

    async def live(self) -> None:
        """Wait until the page hears the daemon."""
        await expect(self.page.locator("#link")).to_have_attribute("data-state", "live")


@asynccontextmanager
async def dashboard(
    url: str,
    *,
    scheme: Literal["light", "dark"] = "light",
    quiet: bool = True,
) -> AsyncIterator[Seen]:
    """Open the page; afterwards its console must have had no error.

    Args:
        url: Of the daemon.
        scheme: What the system prefers.
        quiet: Whether errors are faults; False where the daemon goes away or refuses.
    """
    expect.set_options(timeout=DEADLINE_MS)
    with tempfile.TemporaryDirectory(prefix="mtpd-b-") as profile:
        async with async_playwright() as playwright:
            context = await playwright.chromium.launch_persistent_context(
                profile,
                executable_path=needs.chromium(),
                args=list(ARGUMENTS),
                color_scheme=scheme,
                viewport=DESK,
            )
            context.set_default_timeout(DEADLINE_MS)
            seen = Seen(context.pages[0])

            def logged(message: ConsoleMessage) -> None:
                if message.type == "error":
                    seen.errors.append(message.text)

            def asked(request: Request) -> None:
                seen.asked.append(request.url)

            seen.page.on("console", logged)
            seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
            seen.page.on("request", asked)
            try:
                await seen.page.goto(url)
                yield seen
            finally:
                await context.close()
    if quiet:
        assert seen.errors == []
    assert [one for one in seen.asked if not one.startswith(url)] == [], "only this daemon is asked"
