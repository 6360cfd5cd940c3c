"""Whether a program that is no engine of ours serves: its health check, and nothing else.

It may be anything that speaks HTTP, behind a proxy or in a container, so which process
answers is not known. That nothing answered there before it was started is all that can be
made sure of.
"""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress

import aiohttp
import anyio
from yarl import URL

from mtpd.errors import EngineError
from mtpd.types import FailureClass

__all__ = ["refuse_taken", "until_serving"]

FIRST_S = 0.1
LONGEST_S = 1.0
QUESTION_S = 5.0
CONNECT_S = 0.2
OK = 200


def refuse_taken(url: str) -> None:
    """Refuse a port of this machine where something listens already.

    Raises:
        EngineError: Something does: a start would pass its health check by another's answer.
    """
    base = URL(url)
    if base.host is None or base.port is None or not _is_here(base.host):
        return
    with suppress(OSError), socket.create_connection((base.host, base.port), CONNECT_S):
        msg = f"something listens at {url} already, before the program is started there"
        hint = "end it, or let ${PORT} choose the port; a container may be left from before"
        raise EngineError(msg, failure=FailureClass.CONFIG, hint=hint)


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def until_serving(url: str, check: str | None) -> None:
    """Wait until the health check is answered with 200; for how long is the caller's business.

    Args:
        url: Base of the server.
        check: Path to ask, or None to wait for nothing.
    """
    if check is None:
        return
    timeout = aiohttp.ClientTimeout(total=QUESTION_S)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
        pause_s = FIRST_S
        while not await _answers(session, URL(url + check, encoded=True)):
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, LONGEST_S)


async def _answers(session: aiohttp.ClientSession, url: URL) -> bool:
    try:
        async with session.get(url, allow_redirects=False) as response:
            return response.status == OK
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False
