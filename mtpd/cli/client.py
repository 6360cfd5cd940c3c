"""A small HTTP client for the control API, over the control socket or loopback TCP.

Synchronous and from the standard library, so that ``mtpctl`` starts at once and
Ctrl-C interrupts whatever it waits for.
"""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit

from mtpd.config.directories import Directories, is_there
from mtpd.errors import EXIT_CONFIG, MtpdError, StateError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from mtpd.views import Json

__all__ = [
    "ApiError",
    "Client",
    "HttpTarget",
    "Reply",
    "StreamEvent",
    "UnixTarget",
    "find_target",
    "segment",
]

PREFIX = "/mtpd/v1"
CONFIGURATION = "urn:mtpd:problem:configuration"
SYSTEM_SOCKETS = (Path("/run/mtpd/control.sock"), Path("/run/mtpd-control.sock"))
START_HINT = (
    "Start it with 'mtpd serve --config mtpd.toml' or 'mtpd demo', or name its socket with "
    "--socket or $MTPD_SOCKET."
)
UNKNOWN_HINT = (
    "Give mtpctl a token with --token-file FILE or $MTPD_TOKEN, or leave --url out: the control "
    "socket needs none."
)
CONNECT_S = 5.0
ANSWER_S = 60.0
STREAM_SILENCE_S = 60.0  # the daemon sends a comment every 15 s


class ApiError(MtpdError):
    """The daemon refused; carries its problem document.

    Attributes:
        status: HTTP status.
        text: The body as it came.
    """

    def __init__(self, message: str, *, hint: str | None, status: int, text: str) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.text = text


@dataclass(frozen=True, slots=True)
class UnixTarget:
    """A control socket."""

    path: str

    def __str__(self) -> str:
        """As a sentence names it."""
        return f"the socket {self.path}"


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """A port; the daemon answers there what the token is for.

    Attributes:
        token: An access token, or None.
        tls: Whether a reverse proxy with TLS stands before it.
    """

    host: str
    port: int
    token: str | None = field(default=None, repr=False)
    tls: bool = False

    def __str__(self) -> str:
        """As a sentence names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


Target = UnixTarget | HttpTarget


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: the body as it came, and what it says."""

    text: str
    data: Json


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One server-sent event."""

    type: str
    id: str | None
    text: str
    data: Json = field(compare=False)


def find_target(
    *,
    socket_path: str | None,
    url: str | None,
    environment: Mapping[str, str],
    token: str | None = None,
    system_sockets: Sequence[Path] = SYSTEM_SOCKETS,
) -> Target:
    """Where the daemon is: flag, ``$MTPD_SOCKET``, the runtime directory, the system's.

    Args:
        socket_path: The control socket, or None.
        url: An address for TCP, or None.
        environment: For ``$MTPD_SOCKET`` and the directories.
        token: Sent over TCP only: on the control socket the user counts.
        system_sockets: Where a system's daemon has its socket.

    Raises:
        ValueError: ``url`` is not an http or https URL with a host.
    """
    if socket_path:
        return UnixTarget(socket_path)
    if url:
        return _from_url(url, token)
    if named := environment.get("MTPD_SOCKET"):
        return UnixTarget(named)
    try:
        own = Directories.resolve(environment).control_socket(None)
    except StateError:  # no home and no runtime directory: only the system's daemon is left
        own = system_sockets[0]
    found = next((path for path in (own, *system_sockets) if is_there(path)), own)
    return UnixTarget(str(found))


def _from_url(url: str, token: str | None) -> HttpTarget:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    usual = {"http": http.client.HTTP_PORT, "https": http.client.HTTPS_PORT}.get(parts.scheme)
    if usual is None or not parts.hostname:
        message = f"{url!r} is not a URL such as http://127.0.0.1:8080"
        raise ValueError(message)
    return HttpTarget(parts.hostname, parts.port or usual, token, tls=parts.scheme == "https")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket; the host name means nothing there."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Client:
    """Asks the daemon; one connection per request.

    Args:
        target: Where it is.
        answer_s: Longest silence before an answer is given up; a stream has its own.
    """

    def __init__(self, target: Target, *, answer_s: float = ANSWER_S) -> None:
        self.target = target
        self._answer_s = answer_s

    def get(
        self, path: str, query: Mapping[str, str | int | Sequence[int] | None] | None = None
    ) -> Reply:
        """Look something up; parameters that are None are left out."""
        return self._ask("GET", _with_query(path, query or {}))

    def post(self, path: str, body: Mapping[str, Json], *, key: str | None = None) -> Reply:
        """Start an operation; members that are None are left out."""
        given = {name: value for name, value in body.items() if value is not None}
        return self._ask("POST", path, body=json.dumps(given).encode(), key=key)

    def delete(self, path: str) -> Reply:
        """End something."""
        return self._ask("DELETE", path)

    def events(
        self, *, after: str | None = None, types: str | None = None
    ) -> AbstractContextManager[Iterator[StreamEvent]]:
        """The event stream, as ``stream`` gives it."""
        return self.stream("/events", {"types": types}, after=after)

    @contextmanager
    def stream(
        self, path: str, query: Mapping[str, str | int | None], *, after: str | None = None
    ) -> Iterator[Iterator[StreamEvent]]:
        """A stream of server-sent events; it ends when the daemon ends it.

        Args:
            path: Which.
            query: Parameters that are None are left out.
            after: The id of the last event that is known.

        Raises:
            UnreachableError: The connection broke or was silent for too long.
            ApiError: It was refused.
        """
        path = _with_query(path, query)
        headers = {"Accept": "text/event-stream", **self._token()}
        if after is not None:
            headers["Last-Event-ID"] = after
        with closing(self._connection()) as connection:
            with self._translated():
                answer = self._send(connection, "GET", path, headers, silence_s=STREAM_SILENCE_S)
                text = "" if answer.status == HTTPStatus.OK else _text(answer)
            if answer.status != HTTPStatus.OK:
                raise _refusal(answer.status, text)
            yield _events(self._lines(answer))

    def _ask(
        self, method: str, path: str, *, body: bytes | None = None, key: str | None = None
    ) -> Reply:
        headers = {"Accept": "application/json", **self._token()}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if key is not None:
            headers["Idempotency-Key"] = key
        with closing(self._connection()) as connection, self._translated():
            answer = self._send(connection, method, path, headers, body=body)
            text = _text(answer)
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise _refusal(answer.status, text)
        try:
            return Reply(text, json.loads(text))
        except (ValueError, RecursionError):
            message = f"What answers at {self.target} is not mtpd."
            raise UnreachableError(message, hint=START_HINT) from None

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        body: bytes | None = None,
        silence_s: float | None = None,
    ) -> http.client.HTTPResponse:
        connection.connect()
        connection.sock.settimeout(silence_s or self._answer_s)
        connection.request(method, PREFIX + path, body=body, headers=dict(headers))
        return connection.getresponse()

    def _lines(self, answer: http.client.HTTPResponse) -> Iterator[str]:
        while True:
            with self._translated():  # around the read alone: what our reader raises is its own
                raw = answer.readline()
            if not raw:
                return
            yield raw.decode(errors="replace").rstrip("\r\n")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Say a failed exchange in one sentence."""
        try:
            yield
        except TimeoutError:
            message = f"The daemon does not answer on {self.target} in time."
            hint = "It may hang: see its log, or restart it."
            raise UnreachableError(message, hint=hint) from None
        except OSError as error:  # before HTTPException: RemoteDisconnected is both
            raise self._unreachable(error) from None
        except http.client.HTTPException as error:
            message = f"What answers at {self.target} is not mtpd: {error!r}."
            raise UnreachableError(message, hint=START_HINT) from None

    def _token(self) -> dict[str, str]:
        match self.target:
            case HttpTarget(token=str(token)):
                return {"Authorization": f"Bearer {token}"}
            case _:
                return {}

    def _connection(self) -> http.client.HTTPConnection:
        match self.target:
            case UnixTarget(path=path):
                return _UnixConnection(path, min(CONNECT_S, self._answer_s))
            case HttpTarget(host=host, port=port, tls=tls):
                make = http.client.HTTPSConnection if tls else http.client.HTTPConnection
                return make(host, port, timeout=min(CONNECT_S, self._answer_s))

    def _unreachable(self, error: OSError) -> UnreachableError:
        why = error.strerror or str(error)
        hint = START_HINT
        if isinstance(error, PermissionError):
            hint = "Run mtpctl as the user that the daemon runs as, or as root."
        return UnreachableError(f"No daemon answers on {self.target}: {why}.", hint=hint)


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def _with_query(path: str, query: Mapping[str, str | int | Sequence[int] | None]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def _refusal(status: int, text: str) -> ApiError:
    try:
        problem = json.loads(text)
        kind, detail, hint = problem.get("type"), str(problem["detail"]), problem.get("hint")
        if status == HTTPStatus.UNAUTHORIZED:
            hint = UNKNOWN_HINT
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        kind, detail, hint = None, f"The daemon answered {status}: {text.strip()[:200]}", None
    error = ApiError(detail, hint=hint, status=status, text=text)
    if kind == CONFIGURATION:
        error.exit_code = EXIT_CONFIG
    return error


def _text(answer: http.client.HTTPResponse) -> str:
    return answer.read().decode(errors="replace")


def _events(lines: Iterator[str]) -> Iterator[StreamEvent]:
    """Split a stream into events (WHATWG HTML, section 9.2.6, as far as mtpd writes it)."""
    kind, identity, data = "message", None, list[str]()
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                data.append(value)
            case "event":
                kind = value
            case "id":
                identity = value
            case "" if not line and data:
                text = "\n".join(data)
                yield StreamEvent(kind, identity, text, json.loads(text))
                kind, identity, data = "message", None, []
            case _:
                pass
