"""``python -m tests.documents.status_picture``: draw docs/images/status.svg.

A real daemon tunes the chained tiny model on the embedded engine, answers some requests, and its
status is drawn as ``mtpctl status`` prints it. The machine should be quiet. Replaced is the
path of the control socket, which is a temporary one, and nothing else.
"""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import aiohttp
import anyio
from rich.console import Console
from rich.terminal_theme import MONOKAI

from mtpd.cli.cells import WIDTH
from mtpd.cli.decode import decode
from mtpd.cli.status_screen import status_panel
from mtpd.views import OperationView, StatusView
from tests.fakes.house import daemon_at, home

__all__ = ["drawing"]

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "status.svg"
SOCKET = "/run/mtpd-control.sock"
CONFIG = """
[server]
listen = "127.0.0.1:0"
[engine]
binary = "embedded"
threads = 1
[models.tiny-chained]
model = "bundled:tiny-chained.gguf"
context = 4096
drafter = { kind = "mtp", max_depth = 3 }
"""
QUESTION = {
    "model": "tiny-chained",
    "max_tokens": 64,
    "messages": [{"role": "user", "content": "What does os.path.join do?"}],
}
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


async def measured_status() -> StatusView:
    """The status of a daemon that has tuned and served."""
    async with home() as place:
        place.config.write_text(CONFIG)
        async with daemon_at(place) as (running, client):
            control = aiohttp.UnixConnector(str(place.directories.runtime / "control.sock"))
            async with (
                aiohttp.ClientSession("http://localhost", connector=control) as owner,
                owner.post("/mtpd/v1/tune", json={"subject": "tiny-chained"}) as started,
            ):
                started.raise_for_status()
                operation = decode(OperationView, await started.json())
            await running.operations.ended(operation.id)
            for _ in range(3):
                async with client.post("/v1/chat/completions", json=QUESTION) as reply:
                    reply.raise_for_status()
                    await reply.read()
            async with client.get("/mtpd/v1/status") as reply:
                status = decode(StatusView, await reply.json())
    return replace(status, control_socket=SOCKET)


def drawing(status: StatusView) -> str:
    """The status screen as SVG; it names no font that would have to be fetched."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(status_panel(status))
    picture = console.export_svg(title="mtpctl status", theme=MONOKAI, unique_id="status")
    return _FONTS.sub("", picture)


def main() -> None:
    """Draw it."""
    PICTURE.write_text(drawing(anyio.run(measured_status)), encoding="utf-8")


if __name__ == "__main__":
    main()
