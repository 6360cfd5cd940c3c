"""Talks HTTP to one engine process, over its private unix socket or a loopback port.

Covers single questions (health, metrics, slots, one completion) and an open exchange
for the proxy, which relays the bytes itself. It does not cover waiting, retrying or
judging: the supervisor and the calibration do that.
"""

from __future__ import annotations

import asyncio
import enum
import http
import json
import socket
import struct
from typing import TYPE_CHECKING, Self

import aiohttp

from mtpd.errors import UpstreamError
from mtpd.types import Absent, HttpEndpoint, NotApplicable, TcpEndpoint, UnixEndpoint, Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from mtpd.types import Endpoint, Reading
    from mtpd.views import Json

__all__ = ["EngineClient", "Health"]

KEEP_ALIVE_S = 4.0
"""The engine closes an idle connection after 5 s (cpp-httplib); ours must be gone before."""

CONNECT_S = 5.0
QUESTION_S = 5.0
"""How long the engine may take to answer what needs no token."""

CREDENTIALS = struct.Struct("3i")
"""struct ucred of unix(7): pid, uid, gid."""

OWN_HEADERS = frozenset({"authorization", "x-api-key"})
"""Of the engine's key only this module knows; a client's own key is not the engine's business."""


class Health(enum.StrEnum):
    """What `GET /health` showed."""

    OK = "ok"
    LOADING = "loading"
    REFUSED = "refused"
    ERROR = "error"


class EngineClient:
    """One engine; an async context manager that owns its connections.

    Attributes:
        base_url: What a path is appended to; its host part is a placeholder for unix sockets.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._session: aiohttp.ClientSession | None = None
        key = "" if isinstance(endpoint, HttpEndpoint) else endpoint.api_key
        match endpoint:
            case UnixEndpoint():
                self.base_url = "http://localhost"
            case TcpEndpoint(host=host, port=port):
                self.base_url = f"http://{host}:{port}"
            case HttpEndpoint(url=url):
                self.base_url = url
        self._own = {"Authorization": f"Bearer {key}"} if key else {}

    async def __aenter__(self) -> Self:
        """Open the session; no connection is made yet."""
        self._session = aiohttp.ClientSession(
            connector=_connector(self.endpoint),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close every connection, also those of exchanges that are still open."""
        await self.session.close()
        self._session = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """The session; entering the client opens it."""
        if self._session is None:
            msg = "the engine client is not open"
            raise RuntimeError(msg)
        return self._session

    def open(
        self,
        method: str,
        path: str,
        *,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes | None = None,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Start an exchange whose bytes the caller relays; closing it cancels the generation.

        There is no time limit once connected: a prompt may take minutes before its first
        token. Raises aiohttp.ClientError on entering when the engine cannot be reached.
        """
        sent = [(name, value) for name, value in headers if name.lower() not in OWN_HEADERS]
        return self.session.request(
            method,
            self.base_url + path,
            headers=[*sent, *self._own.items()],
            data=body,
            allow_redirects=False,
        )

    async def health(self) -> Health:
        """Ask for the state of the engine; never raises."""
        try:
            status, text = await self._text("GET", "/health")
        except UpstreamError as error:
            refused = isinstance(error.__cause__, aiohttp.ClientConnectorError)
            return Health.REFUSED if refused else Health.ERROR
        if status == http.HTTPStatus.OK:
            return Health.OK
        if status == http.HTTPStatus.SERVICE_UNAVAILABLE and "Loading model" in text:
            return Health.LOADING
        return Health.ERROR

    async def post_json(
        self, path: str, body: Mapping[str, Json], *, timeout_s: float
    ) -> tuple[int, Json]:
        """Post a body and return status and reply; raises UpstreamError without a JSON reply."""
        status, text = await self._text("POST", path, body=body, timeout_s=timeout_s)
        return status, _json(path, text)

    async def complete(
        self, path: str, body: Mapping[str, Json], *, timeout_s: float
    ) -> dict[str, Json]:
        """Post a generation and return its reply; raises UpstreamError on anything but success."""
        reply = await self.ask(path, body, timeout_s=timeout_s)
        if not isinstance(reply, dict):
            msg = f"the engine answered {path} with no table: {_excerpt(json.dumps(reply))}"
            raise UpstreamError(msg)
        return reply

    async def ask(self, path: str, body: Mapping[str, Json], *, timeout_s: float) -> Json:
        """Post a request of any kind; raises UpstreamError on anything but success."""
        status, reply = await self.post_json(path, body, timeout_s=timeout_s)
        if status != http.HTTPStatus.OK:
            msg = f"the engine answered {path} with status {status}: {_excerpt(json.dumps(reply))}"
            raise UpstreamError(msg)
        return reply

    async def templated(self, messages: Sequence[Mapping[str, Json]]) -> Reading[str]:
        """A chat as the text that the model sees, where the engine tells it.

        Raises:
            UpstreamError: The engine does not answer.
        """
        body: dict[str, Json] = {"messages": [dict(message) for message in messages]}
        status, reply = await self.post_json("/apply-template", body, timeout_s=QUESTION_S)
        match reply:
            case {"prompt": str(text)} if status == http.HTTPStatus.OK:
                return Value(text, "/apply-template")
            case _:
                return Absent(f"the engine answered /apply-template with status {status}")

    async def metrics_text(self) -> str:
        """The Prometheus text of `GET /metrics`; raises UpstreamError if it is switched off."""
        return await self._asked("/metrics")

    async def slots(self) -> list[Json]:
        """The reply of `GET /slots`; raises UpstreamError if it is switched off."""
        reply = _json("/slots", await self._asked("/slots"))
        if not isinstance(reply, list):
            msg = "the engine answered /slots without a list"
            raise UpstreamError(msg)
        return reply

    async def props(self) -> dict[str, Json]:
        """The reply of `GET /props`."""
        reply = _json("/props", await self._asked("/props"))
        if not isinstance(reply, dict):
            msg = "the engine answered /props without an object"
            raise UpstreamError(msg)
        return reply

    async def peer_pid(self) -> Reading[int]:
        """Process id of who listens on the unix socket (SO_PEERCRED); never raises."""
        if not isinstance(self.endpoint, UnixEndpoint):
            return NotApplicable("the engine listens on a TCP port, which has no peer credentials")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
            try:
                async with asyncio.timeout(CONNECT_S):
                    await asyncio.get_running_loop().sock_connect(probe, self.endpoint.path)
                data = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
            except OSError as error:
                return Absent(f"cannot connect to {self.endpoint.path}: {error}")
        pid, _, _ = CREDENTIALS.unpack(data)
        return Value(pid, "SO_PEERCRED")

    async def _asked(self, path: str) -> str:
        status, text = await self._text("GET", path)
        if status != http.HTTPStatus.OK:
            msg = f"the engine answered {path} with status {status}: {_excerpt(text)}"
            raise UpstreamError(msg)
        return text

    async def _text(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Json] | None = None,
        timeout_s: float = QUESTION_S,
    ) -> tuple[int, str]:
        sent = None if body is None else json.dumps(body).encode()
        headers = [] if body is None else [("Content-Type", "application/json")]
        try:
            async with (
                asyncio.timeout(timeout_s),
                self.open(method, path, headers=headers, body=sent) as response,
            ):
                return response.status, (await response.read()).decode(errors="replace")
        except (aiohttp.ClientError, TimeoutError) as error:
            why = str(error) or f"no answer within {timeout_s:g} s"
            msg = f"the engine did not answer {path}: {why}"
            raise UpstreamError(msg) from error


def _connector(endpoint: Endpoint) -> aiohttp.BaseConnector:
    """Without a limit: how many requests may run at once is admission's decision."""
    match endpoint:
        case UnixEndpoint(path=path):
            return aiohttp.UnixConnector(path=path, limit=0, keepalive_timeout=KEEP_ALIVE_S)
        case TcpEndpoint() | HttpEndpoint():
            return aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)


def _json(path: str, text: str) -> Json:
    try:
        reply: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"the engine answered {path} with what is not JSON: {_excerpt(text)}"
        raise UpstreamError(msg) from error
    return reply


def _excerpt(text: str, length: int = 200) -> str:
    return text if len(text) <= length else f"{text[:length]}…"
