"""nginx in front of an engine, as a yardstick for the relay."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import psutil

from mtpd.listen import free_port
from tests.fakes.serve import reached

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["nginx", "nginx_binary"]

UNPACKED = Path(__file__).parents[2] / ".bench" / "nginx" / "usr" / "sbin" / "nginx"
START_S = 10.0
CONFIG = """
{user}daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream engine {{ server unix:{engine}; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://engine;
            proxy_http_version 1.1;
            proxy_buffering off;
            proxy_read_timeout 600s;
        }}
    }}
}}
"""


def nginx_binary() -> str | None:
    """The system's, or the one that ``get_nginx.sh`` has unpacked; None without one."""
    return shutil.which("nginx") or (str(UNPACKED) if UNPACKED.exists() else None)


@asynccontextmanager
async def nginx(binary: str, engine: Path, folder: Path) -> AsyncIterator[tuple[int, int]]:
    """One worker, no buffering, in front of an engine's unix socket; its port and process."""
    port = free_port()
    user = "user root;\n" if os.geteuid() == 0 else ""
    config = folder / "nginx.conf"
    config.write_text(CONFIG.format(user=user, folder=folder, engine=engine, port=port))
    argv = [binary, "-c", str(config), "-e", str(folder / "error.log")]
    async with await anyio.open_process(argv, stdout=subprocess.DEVNULL, stderr=None) as process:
        try:
            with anyio.fail_after(START_S):
                while not reached(f"http://127.0.0.1:{port}"):  # noqa: ASYNC110 - tells nobody
                    await anyio.sleep(0.05)
            (worker,) = psutil.Process(process.pid).children()
            yield port, worker.pid
        finally:
            process.terminate()
