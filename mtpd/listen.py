"""Listening sockets, our own or the service manager's, and the HTTP server on them."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from aiohttp import web

from mtpd.config.model import ServerTimeouts
from mtpd.errors import ConfigError, MtpdError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from aiohttp.typedefs import Handler

    from mtpd.config.model import ServerConfig

__all__ = ["Handed", "bind_tcp", "bind_unix", "free_port", "handed", "serving", "url_of"]

BACKLOG = 512
ACCEPTS = 8
"""Connections that are accepted in one turn of the loop. asyncio takes one number for this and for
the backlog, and where descriptors have run out it reports each of them, every second."""
FIRST_HANDED = 3
"""Descriptor of the first socket that a service manager hands over (sd_listen_fds(3))."""
_FAMILIES = {"api": (socket.AF_INET, socket.AF_INET6), "control": (socket.AF_UNIX,)}
UNLIMITED_S = 366 * 86_400.0


class Connection(web.RequestHandler):
    """A client's connection: closed where the head of a request does not come in time.

    aiohttp itself waits for a head for as long as its keep-alive lasts, so that a few
    hundred clients that send a byte now and then would hold every descriptor.
    """

    __slots__ = ("_busy", "_head_s", "_late")

    def __init__(
        self, server: web.Server, timeouts: ServerTimeouts, loop: asyncio.AbstractEventLoop
    ) -> None:
        keep_alive_s = timeouts.keep_alive_s or UNLIMITED_S
        silent: Any = None  # as AppRunner takes it; the annotation of RequestHandler lacks it
        super().__init__(server, loop=loop, keepalive_timeout=keep_alive_s, access_log=silent)
        self._head_s = timeouts.head_s
        self._late: asyncio.TimerHandle | None = None
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The head of the first request is waited for."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Between requests: the head of the next one has begun."""
        self._wait()
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Nothing is waited for any more."""
        self.begun()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer without the bytes of what was not understood, which may be a secret."""
        if status != HTTPStatus.INTERNAL_SERVER_ERROR:
            message = f"{status} {HTTPStatus(status).phrase}\n"
        return super().handle_error(request, status, exc, message)

    def begun(self) -> None:
        """The head is there."""
        self._busy = True
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def ended(self) -> None:
        """The request is answered; the next one may come."""
        self._busy = False

    def _wait(self) -> None:
        if self._head_s and not self._busy and self._late is None:
            loop = asyncio.get_running_loop()
            self._late = loop.call_later(self._head_s, self.force_close)


@web.middleware
async def _heads(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell the connection when a head is whole and when its request is answered."""
    connection = request.protocol
    if not isinstance(connection, Connection):
        return await handler(request)
    connection.begun()
    try:
        return await handler(request)
    finally:
        connection.ended()


@asynccontextmanager
async def serving(
    app: web.Application,
    sockets: tuple[socket.socket, ...],
    *,
    timeouts: Callable[[], ServerTimeouts] = ServerTimeouts,
    shutdown_s: float = 1.0,
) -> AsyncIterator[None]:
    """Serve an application on bound sockets while the block runs.

    A client that hangs up cancels its handler, and with it the generation upstream.
    Running handlers get ``shutdown_s`` at the end; ``timeouts`` is asked for each connection.
    """
    app.middlewares.insert(0, _heads)
    runner = web.AppRunner(
        app, handler_cancellation=True, shutdown_timeout=shutdown_s, access_log=None
    )
    await runner.setup()
    server, loop = runner.server, asyncio.get_running_loop()
    assert server is not None  # noqa: S101 - set up
    listeners: list[asyncio.Server] = []
    try:
        for sock in sockets:
            listener = await loop.create_server(
                lambda: Connection(server, timeouts(), loop), sock=sock, backlog=ACCEPTS
            )
            listeners.append(listener)
            sock.listen(BACKLOG)
        yield
    finally:
        with anyio.CancelScope(shield=True):
            for listener in listeners:
                listener.close()
            await runner.cleanup()


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """Listening sockets that the service manager has opened, and keeps beyond our end.

    Attributes:
        tcp: For clients; none where we have to bind our own.
        unix: For control, likewise.
    """

    tcp: tuple[socket.socket, ...] = ()
    unix: tuple[socket.socket, ...] = ()

    @property
    def control_path(self) -> Path | None:
        """Where control is reached; None where no socket for it was handed over."""
        return Path(os.fsdecode(self.unix[0].getsockname())) if self.unix else None

    def close(self) -> None:
        """Close our copies; the service manager goes on listening."""
        for sock in (*self.tcp, *self.unix):
            sock.close()

    def contradiction(self, server: ServerConfig) -> str | None:
        """What is to be told where ``server.listen`` says otherwise; it has no effect then.

        Raises:
            ConfigError: Other machines would reach what is configured for this one only.
        """
        urls = [url_of(sock) for sock in self.tcp]
        for sock, url in zip(self.tcp, urls, strict=True):
            if not ipaddress.ip_address(sock.getsockname()[0]).is_loopback and not server.remote:
                problem = (
                    f"the socket unit listens on {url}, which other machines can reach, but"
                    f" server.listen is {server.listen}"
                )
                hint = (
                    "set [server] listen to that address, with 'hosts' and an access token, or"
                    " ListenStream= of mtpd.socket to a loopback address"
                )
                raise ConfigError((problem,), hint=hint)
        if not urls or f"http://{server.listen}" in urls:
            return None
        return f"the socket unit listens on {urls[0]}; server.listen {server.listen} has no effect"


def handed(environment: Mapping[str, str], *, first: int = FIRST_HANDED) -> Handed:
    """Take over the sockets that the service manager has opened for this process.

    A socket is for clients or for control by its family; one that is named ``api`` or
    ``control`` (``FileDescriptorName=``) must be of the right one.

    Raises:
        ConfigError: One of them is no socket that we can answer on.
    """
    count = environment.get("LISTEN_FDS", "")
    if environment.get("LISTEN_PID") != str(os.getpid()) or not count.isdecimal():
        return Handed()
    names = environment.get("LISTEN_FDNAMES", "").split(":")
    names += [""] * (int(count) - len(names))
    sockets: list[socket.socket] = []
    try:
        for fd, name in zip(range(first, first + int(count)), names, strict=False):
            sockets.append(_taken(fd, name))
    except ConfigError:
        for sock in sockets:
            sock.close()
        raise
    control = tuple(sock for sock in sockets if sock.family == socket.AF_UNIX)
    return Handed(tcp=tuple(sock for sock in sockets if sock not in control), unix=control)


def _taken(fd: int, name: str) -> socket.socket:
    label = f"socket {fd} ({name})" if name else f"socket {fd}"
    hint = "mtpd.socket and mtpd-control.socket, as mtpd install-units writes them, are right"
    try:
        sock = socket.socket(fileno=fd)
        listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        problem = f"the service manager's {label} cannot be used: {error.strerror}"
        raise ConfigError((problem,), hint=hint) from error
    sock.set_inheritable(False)
    expected = _FAMILIES.get(name, (*_FAMILIES["api"], *_FAMILIES["control"]))
    if listens and sock.type == socket.SOCK_STREAM and sock.family in expected:
        return sock
    sock.close()
    problem = f"the service manager's {label} is not a stream socket of the right family"
    raise ConfigError((problem,), hint=hint)


def bind_tcp(host: str, port: int) -> socket.socket:
    """Bind a loopback listener.

    Raises:
        MtpdError: The port is taken or may not be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:  # a kernel without IPv6
        raise _refused(host, port, error) from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)  # a port in use shows only here where SO_REUSEADDR is set
    except OSError as error:
        sock.close()
        raise _refused(host, port, error) from error
    return sock


def _refused(host: str, port: int, error: OSError) -> MtpdError:
    msg = f"cannot listen on {host}:{port}: {error.strerror}"
    return MtpdError(msg, hint="another program may listen there; choose another address or port")


def bind_unix(path: Path) -> socket.socket:
    """Bind the control socket, mode 0600; the leftover of a dead daemon is replaced.

    Raises:
        MtpdError: The path cannot be bound, or a living program listens there.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket() and not _answers(path):
            path.unlink()
        before = os.umask(0o177)
        try:
            sock.bind(str(path))
        finally:
            os.umask(before)
    except OSError as error:
        sock.close()
        msg = f"cannot listen on the control socket {path}: {error.strerror or error}"
        raise MtpdError(
            msg, hint="choose another runtime directory, or set [server] control_socket"
        ) from error
    return sock


def _answers(path: Path) -> bool:
    """Whether somebody listens on a socket file; only a refusal proves that nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:  # e.g. no right to connect, or a full backlog
            return True
    return True


def free_port() -> int:
    """A loopback port that is free now; for engines that cannot use a unix socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def url_of(listener: socket.socket) -> str:
    """Where a TCP listener is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
