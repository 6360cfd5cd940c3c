"""Who is at the other end of a connection, as the kernel tells."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio.trsock import TransportSocket

    from aiohttp import web

__all__ = ["Peer", "peer_of"]

_SO_PEERGROUPS = 59  # of Linux 4.13 and newer; the socket module has no name for it
_GROUPS_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other end of the connection.

    Attributes:
        uid: Of a peer on the unix socket; None over TCP.
        gids: Its groups.
        port: Our own port of a TCP connection; None on the unix socket.
    """

    uid: int | None = None
    gids: frozenset[int] = frozenset()
    port: int | None = None


def peer_of(request: web.Request) -> Peer:
    """Of a request."""
    transport = request.transport
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None or sock.family != socket.AF_UNIX:
        name = None if transport is None else transport.get_extra_info("sockname")
        # A connection that is gone has no port; -1 is equal to none, so nothing is admitted.
        return Peer(port=name[1] if name else -1)
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, gid = struct.unpack("3i", credentials)
    return Peer(uid=uid, gids=frozenset({gid, *_other_groups(sock)}))


def _other_groups(sock: TransportSocket) -> tuple[int, ...]:
    """The supplementary groups of a peer on a unix socket; none where it has very many."""
    try:
        packed = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
    except OSError:
        return ()
    return struct.unpack(f"{len(packed) // 4}I", packed)
