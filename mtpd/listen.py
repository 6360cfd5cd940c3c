"""Listening sockets and the HTTP server on them."""

from __future__ import annotations

import os
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from aiohttp import web

from mtpd.errors import MtpdError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = ["bind_tcp", "bind_unix", "free_port", "serving", "url_of"]

BACKLOG = 512


@asynccontextmanager
async def serving(
    app: web.Application, sockets: tuple[socket.socket, ...], *, shutdown_s: float = 1.0
) -> AsyncIterator[None]:
    """Serve an application on bound sockets while the block runs.

    A client that hangs up cancels its handler, and with it the generation upstream.
    Running handlers get ``shutdown_s`` at the end.
    """
    runner = web.AppRunner(
        app, handler_cancellation=True, shutdown_timeout=shutdown_s, access_log=None
    )
    await runner.setup()
    try:
        for sock in sockets:
            await web.SockSite(runner, sock, backlog=BACKLOG).start()
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await runner.cleanup()


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
