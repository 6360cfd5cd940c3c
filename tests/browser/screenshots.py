"""``make screenshots``: the dashboard as docs/images shows it, light, dark and on a phone.

The engine is the scripted one, with the speeds and the acceptance that study 000 measured of
the two models, and the card is a recorded gfx906 whose sensors are moved along: no machine of
the tests has that card. The daemon, its decisions, the page and the browser are the real ones.
"""

from __future__ import annotations

import math
import os
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp
import anyio
from playwright.async_api import expect

from mtpd.app import daemon
from mtpd.config.load import load
from tests.browser.chromium import dashboard
from tests.fakes import sysfs
from tests.fakes.big_model import write_27b
from tests.fakes.binary import fake_binary
from tests.fakes.house import Home
from tests.fakes.script import Device, Script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Page, ViewportSize

    from mtpd.app import Daemon

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
DESK: Final[ViewportSize] = {"width": 1280, "height": 1640}
MARGIN: Final = 14
"""Pixels below the last panel of a picture."""
PHONE: Final[ViewportSize] = {"width": 390, "height": 1500}
TRAFFIC_S: Final = 150
"""So long requests come before the picture is taken, so that the history has something."""

TEXT: Final = (
    "A draft head proposes the next tokens, and the model verifies all of them in one step. "
    "What it accepts is free; what it rejects has cost a row. So there is a depth at which one "
    "more guess costs more than it earns, and which one that is depends on the model, the card "
    "and what is written."
)
PROMPTS: Final = (
    "def parse(text):\n    for line in text.splitlines():\n        yield line.split()\n" * 4,
    "Tell me about the sea in winter, in the words of a fisherman who has grown old. " * 4,
)
MODELS: Final = (
    ("Qwen3.6-27B-B2", 5.6553, {"tps0": 33.0, "row_cost": 0.41, "acceptance": (0.961, 0.885, 0.6)}),
    ("Qwen3.8-27B-B2", 5.7722, {"tps0": 32.4, "row_cost": 0.41, "acceptance": (0.932, 0.735, 0.5)}),
)
"""Of study 000: file, perplexity, and what the scripted engine makes of it."""

FILE_BYTES: Final = 16 * 10**9
"""Enough for every tensor that the header names."""

CONFIG: Final = """
[server]
listen = "127.0.0.1:0"
[engine]
binary = "{binary}"
[budget]
hardware = "gfx906-16g-150w"
[tuning]
mode = "idle"
[pools.default]
members = ["qwen3.6-27b-b2", "qwen3.8-27b-b2"]
"""
MODEL: Final = """
[models."{name}"]
model = "{path}"
context = 8192
slots = 1
kv_type = "q8_0"
[models."{name}".drafter]
kind = "mtp"
max_depth = 3
[models."{name}".quality]
perplexity = {perplexity}
stderr = 0.15
corpus = "wikitext-2"
chunks = 32
"""


class Sensors:
    """Moves the sensors of the recorded card along with what the engine does."""

    def __init__(self, tree: sysfs.Tree) -> None:
        self._tree, self._edge_c, self._steps = tree, 38.0, 0
        self.warms = False
        """Whether work heats the card; not while measuring, whose gate wants it cool."""

    async def follow(self, running: Daemon) -> None:
        """Until it is cancelled."""
        while True:
            queue = (await running.control.status()).queue
            busy = queue.in_flight > 0 or running.operations.current is not None
            goal_c = 64.0 if busy and self.warms else 38.0
            self._edge_c += (goal_c - self._edge_c) * 0.02
            self._steps += 1
            ripple = round(3 * math.sin(self._steps / 3) + 2 * math.sin(self._steps / 7))
            self._tree.sensors(
                edge_c=round(self._edge_c),
                junction_c=round(self._edge_c * 1.13),
                memory_c=round(self._edge_c * 1.04),
                power_w=143 + ripple if busy else 24,
                busy_percent=98 if busy else 0,
                core_mhz=1343 if busy else 809,
            )
            await anyio.sleep(0.5)


@asynccontextmanager
async def serving(place: Home, tree: sysfs.Tree) -> AsyncIterator[Daemon]:
    """A daemon with the two models of the study."""
    script = Script(
        device=Device(),
        machine=str(tree.root),
        realtime=True,
        text=TEXT,
        models={name: knobs for name, _, knobs in MODELS},
    )
    text = CONFIG.format(binary=fake_binary(place.root / "llama-server", script))
    for name, perplexity, _ in MODELS:
        path = write_27b(place.root / f"{name}.gguf")
        os.truncate(path, FILE_BYTES)  # a hole: nothing is written, and nothing reads it
        text += MODEL.format(name=name.lower(), path=path, perplexity=perplexity)
    place.config.write_text(text)
    async with daemon(
        load(place.config),
        place.directories,
        path_env=os.environ["PATH"],
        machine=tree.root,
        hash_delay_s=86_400.0,
    ) as running:
        yield running


async def measure(running: Daemon) -> None:
    """Tune the pool, as ``mtpctl tune default`` does."""
    asked = await running.control.tune(
        subject="default",
        method="sweep",
        depths=None,
        workloads=("prose", "code"),
        prompts=1,
        repetitions=1,
        max_tokens=260,
        apply=True,
        idempotency_key=None,
    )
    ended = await running.operations.ended(asked.id)
    assert ended is not None
    assert ended.state == "done", ended.error


async def traffic(running: Daemon) -> None:
    """Requests one after the other, with short pauses, for the history."""
    async with aiohttp.ClientSession(running.url) as client:
        end, number = anyio.current_time() + TRAFFIC_S, 0
        while anyio.current_time() < end:
            number += 1
            prompt = f"{number}: {PROMPTS[number % len(PROMPTS)]}"
            body = {
                "model": "default",
                "temperature": 0,
                "max_tokens": 120 + 40 * (number % 4),
                "messages": [{"role": "user", "content": prompt}],
            }
            async with client.post("/v1/chat/completions", json=body) as reply:
                assert reply.status == 200, await reply.text()
            await anyio.sleep(0.6 if number % 5 else 6)


async def ready(page: Page) -> None:
    """Wait for everything that the picture shows; ask the chat box something."""
    await expect(page.locator("#depth .chart")).to_be_visible()
    await expect(page.locator("#history canvas").first).to_be_visible()
    await page.get_by_role("textbox", name="Message").fill("Why is a deeper draft not faster?")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator("#chat .made")).to_contain_text("drafts accepted")
    await expect(page.locator("#acceptance")).to_contain_text("sampled")  # the chat's own class
    await page.evaluate("document.activeElement.blur()")


async def main() -> None:
    """Take the three pictures."""
    with tempfile.TemporaryDirectory(prefix="mtpd-s-") as folder:
        root = Path(folder)
        (root / "machine").mkdir()
        tree = sysfs.build(root / "machine", "idle")
        async with serving(Home(root), tree) as running, anyio.create_task_group() as tasks:
            sensors = Sensors(tree)
            tasks.start_soon(sensors.follow, running)
            await measure(running)
            sensors.warms = True
            await traffic(running)
            async with dashboard(running.url) as seen:
                await seen.page.set_viewport_size(DESK)
                await seen.live()
                await ready(seen.page)
                await down_to(seen.page, "#depth")
                await shoot(seen.page, "light")
                await seen.page.emulate_media(color_scheme="dark")
                await shoot(seen.page, "dark")
                await seen.page.emulate_media(color_scheme="light")
                await seen.page.set_viewport_size(PHONE)
                await shoot(seen.page, "phone")
            tasks.cancel_scope.cancel()


async def down_to(page: Page, panel: str) -> None:
    """Make the window as high as the page is down to the end of a panel."""
    bottom = "node => Math.ceil(node.getBoundingClientRect().bottom + scrollY)"
    height = await page.locator(panel).evaluate(bottom)
    await page.set_viewport_size({"width": DESK["width"], "height": height + MARGIN})


async def shoot(page: Page, name: str) -> None:
    """Save what the window shows."""
    await page.evaluate("scrollTo(0, 0)")
    await page.screenshot(path=IMAGES / f"dashboard-{name}.png")


if __name__ == "__main__":
    anyio.run(main)
