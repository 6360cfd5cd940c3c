"""A real Prometheus as a child process, with the shipped alerts, that scrapes one target."""

from __future__ import annotations

import json
import subprocess
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import anyio

from mtpd.config.data import prometheus_dir
from mtpd.listen import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = ["Prometheus", "scraping"]

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Prometheus:
    """Asks its API."""

    client: aiohttp.ClientSession

    async def get(self, path: str, **params: str) -> Any:
        """The data of a reply."""
        async with self.client.get(f"/api/v1/{path}", params=params) as reply:
            said = await reply.json()
        assert said["status"] == "success", said
        return said["data"]

    async def value(self, query: str) -> float | None:
        """The one sample of a query, or None where there is none."""
        found = (await self.get("query", query=query))["result"]
        assert len(found) < 2, found
        return float(found[0]["value"][1]) if found else None

    async def until(self, query: str, wanted: float) -> None:
        """Wait until a query has one sample of this value."""
        seen: float | None = None
        with anyio.move_on_after(PATIENCE_S):
            while (seen := await self.value(query)) != wanted:  # noqa: ASYNC110 - of a process
                await anyio.sleep(0.1)
        assert seen == wanted, query

    async def until_alert(self, name: str) -> dict[str, Any]:
        """Wait until an alert is pending or firing."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                for alert in (await self.get("alerts"))["alerts"]:
                    if alert["labels"]["alertname"] == name:
                        return dict(alert)
                await anyio.sleep(0.1)


@asynccontextmanager
async def scraping(target: str, folder: Path) -> AsyncIterator[Prometheus]:
    """Run Prometheus over ``HOST:PORT``; its files go into a folder."""
    listen = f"127.0.0.1:{free_port()}"
    config = folder / "prometheus.yml"
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(prometheus_dir() / "alerts.yml")],
        "scrape_configs": [{"job_name": "mtpd", "static_configs": [{"targets": [target]}]}],
    }
    config.write_text(json.dumps(settings))  # JSON is YAML
    process = await anyio.open_process(
        (
            *("/usr/bin/env", "prometheus", f"--config.file={config}"),
            *(f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={listen}"),
        ),
        stdin=subprocess.DEVNULL,
        stdout=None,
        stderr=None,
    )
    try:
        async with aiohttp.ClientSession(f"http://{listen}") as client:
            await _ready(client)
            yield Prometheus(client)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.wait()


async def _ready(client: aiohttp.ClientSession) -> None:
    with anyio.fail_after(PATIENCE_S):
        while True:
            with suppress(aiohttp.ClientConnectionError):
                async with client.get("/-/ready") as reply:
                    if reply.status == 200:
                        return
            await anyio.sleep(0.05)
