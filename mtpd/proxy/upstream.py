"""One engine's endpoint as the relay uses it: a session of its own, no pooling, no limits.

Separate from ``mtpd.engine.client``: a relayed response is never decompressed, never
timed out (a long prompt is silent for minutes) and never sent twice. Connections are
not kept: the engine's HTTP server closes idle ones, and a request that meets a closing
connection would be lost.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import aiohttp
from yarl import URL

from mtpd.proxy.outcomes import UpstreamLostError
from mtpd.types import HttpEndpoint, UnixEndpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from mtpd.types import Endpoint

__all__ = ["EndpointUpstream", "Upstream", "next_chunk"]

CONNECT_S = 2.0
READ_BUFFER_BYTES = 128 * 1024


class Upstream(Protocol):
    """Where a request goes."""

    def open(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        data: bytes | AsyncIterator[bytes],
        connect_s: float = CONNECT_S,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a request; the block has the response, its headers read.

        ``path`` is sent as it is, with its query. Leaving the block closes the
        connection, which ends the generation. A connection must be taken within
        ``connect_s``; 0 is no limit.

        Raises:
            UpstreamLostError: The engine could not be reached or hung up.
        """


class EndpointUpstream:
    """The relay's session with one endpoint; ``aclose`` ends whatever still uses it."""

    def __init__(self, endpoint: Endpoint) -> None:
        connector: aiohttp.BaseConnector
        if isinstance(endpoint, UnixEndpoint):
            connector = aiohttp.UnixConnector(path=endpoint.path, force_close=True, limit=0)
            self._base, self._own = "http://engine", dict[str, str]()
        elif isinstance(endpoint, HttpEndpoint):
            connector = aiohttp.TCPConnector(force_close=True, limit=0)
            self._base, self._own = endpoint.url, {}
        else:
            connector = aiohttp.TCPConnector(force_close=True, limit=0)
            self._base = f"http://{endpoint.host}:{endpoint.port}"
            self._own = {"Authorization": f"Bearer {endpoint.api_key}"}
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER_BYTES,
            skip_auto_headers=("User-Agent", "Accept"),
            trust_env=False,
        )

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        data: bytes | AsyncIterator[bytes],
        connect_s: float = CONNECT_S,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """See ``Upstream.open``."""
        sent = {**headers, **self._own}
        try:
            response = await self._session.request(
                method,
                URL(self._base + path, encoded=True),
                headers=sent,
                data=data or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_s or None),
            )
        except (aiohttp.ClientError, OSError) as error:
            msg = "the engine hung up before it answered"
            raise UpstreamLostError(msg) from error
        try:
            yield response
        finally:
            response.close()

    async def aclose(self) -> None:
        """Close every connection."""
        await self._session.close()


async def next_chunk(response: aiohttp.ClientResponse) -> bytes:
    """The next bytes as they come, or b"" at the end of the response.

    Raises:
        UpstreamLostError: The connection broke before the end of the response.
    """
    try:
        return await response.content.readany()
    except (aiohttp.ClientError, OSError) as error:
        msg = "the engine broke off in the middle of its response"
        raise UpstreamLostError(msg) from error
