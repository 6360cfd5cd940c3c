"""A reader of server-sent events, as far as the daemon writes them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from tests.fakes.patience import SOON_S

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Got", "Reader"]


@dataclass(frozen=True, slots=True)
class Got:
    """One received event."""

    type: str
    id: str | None
    data: Any


class Reader:
    """Reads events from an open stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> Got | None:
        """The next event; None at the end of the stream."""
        fields: dict[str, str] = {}
        with anyio.fail_after(SOON_S):
            while line := (await self.response.content.readline()).decode():
                if line == "\r\n" and "data" in fields:
                    return Got(fields["event"], fields.get("id"), json.loads(fields["data"]))
                name, _, value = line.rstrip("\r\n").partition(": ")
                fields[name] = value
        return None

    async def some(self) -> Got:
        """The next event, which must come."""
        got = await self.next()
        assert got is not None, "the stream has ended"
        return got

    async def take(self, count: int) -> list[Got | None]:
        """The next events; None for each beyond the end."""
        return [await self.next() for _ in range(count)]
