"""Who may ask for what: the decision, and the middleware that asks for it.

The transport decides. A peer on the control socket is known by its uid; over TCP
anybody on this machine, and any web page in its browsers, may be asking, so there
only reads are answered, and only under a name that is ours. There are no tokens yet.
"""

from __future__ import annotations

import enum
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import web

from mtpd.api.errors import problem_response
from mtpd.api.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from aiohttp.typedefs import Handler, Middleware

__all__ = ["Asked", "Peer", "Plane", "Policy", "Scope", "decide", "middleware", "owns"]

CONTROL_PREFIX = "/mtpd/"
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_HTTP_PORT = 80


class Scope(enum.StrEnum):
    """What a request does to the daemon."""

    READ = "read"
    WRITE = "write"


class Plane(enum.StrEnum):
    """Which half of the house a path belongs to."""

    CONTROL = "control"
    DATA = "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Who is trusted.

    Attributes:
        daemon_uid: Peers of the control socket with this uid, or root, may do everything.
    """

    daemon_uid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other end of the connection.

    Attributes:
        uid: Of a peer on the unix socket; None over TCP.
        port: Our own port of a TCP connection; None on the unix socket.
    """

    uid: int | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the decision depends on.

    Attributes:
        hosts: Every ``Host`` header; one is right.
        authority: Of an absolute-form request target, else None.
        media_type: Of the body, lower case, without parameters; None without a body.
    """

    peer: Peer
    plane: Plane
    scope: Scope
    hosts: tuple[str, ...]
    authority: str | None = None
    origin: str | None = None
    fetch_site: str | None = None
    media_type: str | None = None


def decide(asked: Asked, policy: Policy) -> Problem | None:
    """None when the request may go on, else what to answer."""
    refusals = _DATA if asked.plane is Plane.DATA else _CONTROL
    for refusal in refusals:
        problem = refusal(asked, policy)
        if problem is not None:
            return problem
    return None


def _peer(asked: Asked, policy: Policy) -> Problem | None:
    if asked.peer.port is not None or asked.peer.uid in {0, policy.daemon_uid}:
        return None
    return Problem(
        slug="peer-not-allowed",
        status=403,
        title="This user may not use the control socket",
        detail=f"The peer's uid is {asked.peer.uid}; "
        f"only uid {policy.daemon_uid} and root are admitted.",
        hint="Run the command as the user that the daemon runs as.",
    )


def _host(asked: Asked, _policy: Policy) -> Problem | None:
    if asked.peer.port is None:
        return None  # no browser can be led to a unix socket by a name
    allowed = _authorities(asked.peer.port)
    named = (*asked.hosts, *(() if asked.authority is None else (asked.authority,)))
    if len(asked.hosts) == 1 and all(name.lower() in allowed for name in named):
        return None
    return Problem(
        slug="misdirected",
        status=421,
        title="This is not the host that was asked for",
        detail="The Host header must be one of " + ", ".join(sorted(allowed)) + ".",
        hint="Use the address that mtpd prints; other names are refused so that a web page "
        "cannot reach the daemon by DNS rebinding.",
    )


def _authorities(port: int) -> frozenset[str]:
    """The names that are ours; without a port only where 80 is meant."""
    bare = _LOOPBACK_NAMES if port == _HTTP_PORT else ()
    return frozenset((*bare, *(f"{name}:{port}" for name in _LOOPBACK_NAMES)))


def _origin(asked: Asked, _policy: Policy) -> Problem | None:
    if asked.origin is None or (asked.peer.port is not None and _same_origin(asked)):
        return None
    return Problem(
        slug="cross-origin",
        status=403,
        title="Requests from other origins are refused",
        detail=f"The Origin header says {asked.origin[:200]!r}, which is not this daemon.",
        hint="mtpd answers web pages only from its own address.",
    )


def _same_origin(asked: Asked) -> bool:
    scheme, _, authority = (asked.origin or "").lower().partition("://")
    suffix = f":{_HTTP_PORT}"
    hosts = {host.lower().removesuffix(suffix) for host in asked.hosts}
    return scheme == "http" and hosts == {authority.removesuffix(suffix)}


def _fetch_site(asked: Asked, _policy: Policy) -> Problem | None:
    if asked.fetch_site is None or asked.fetch_site in {"none", "same-origin"}:
        return None
    return Problem(
        slug="cross-site",
        status=403,
        title="Requests from other sites are refused",
        detail=f"The Sec-Fetch-Site header says {asked.fetch_site[:40]!r}.",
        hint="Open the address itself instead of following a page of another site.",
    )


def _transport(asked: Asked, _policy: Policy) -> Problem | None:
    if asked.scope is Scope.READ or asked.peer.port is None:
        return None
    return Problem(
        slug="control-socket-only",
        status=403,
        title="Changes are taken on the control socket only",
        detail="Over TCP the control API only answers reads.",
        hint="Use the control socket: mtpctl without --url, or curl --unix-socket PATH "
        "(GET /mtpd/v1/status names the path).",
    )


def _media_type(asked: Asked, _policy: Policy) -> Problem | None:
    if asked.scope is Scope.READ or asked.media_type in {None, "application/json"}:
        return None
    return Problem(
        slug="unsupported-media-type",
        status=415,
        title="Bodies must be JSON",
        detail=f"The Content-Type is {asked.media_type!r}; it must be application/json.",
        hint="Send the header Content-Type: application/json.",
    )


# A page's image or link has no Origin, and reading /props or /upstream loads a model.
_DATA = (_peer, _host, _origin, _fetch_site)
_CONTROL = (*_DATA, _transport, _media_type)


def middleware(
    policy: Policy, scopes: Mapping[tuple[str, str], Scope], control: Container[str] = ()
) -> Middleware:
    """Ask ``decide`` before any handler runs.

    Args:
        policy: Who is trusted.
        scopes: Scope by method and route path; other requests write unless they
            are GET or HEAD.
        control: Route paths outside ``/mtpd/`` that belong to the control plane.
    """

    @web.middleware
    async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
        problem = decide(_asked(request, scopes, control), policy)
        return await handler(request) if problem is None else problem_response(problem)

    return authenticate


def owns(request: web.Request) -> bool:
    """Whether a request that was let through came over the control socket."""
    return _peer_of(request).uid is not None


def _asked(
    request: web.Request, scopes: Mapping[tuple[str, str], Scope], outside: Container[str]
) -> Asked:
    resource = request.match_info.route.resource
    canonical = "" if resource is None else resource.canonical
    control = canonical in outside or any(
        path.startswith(CONTROL_PREFIX) for path in (request.path, canonical)
    )
    reads = request.method in {"GET", "HEAD"}
    return Asked(
        peer=_peer_of(request),
        plane=Plane.CONTROL if control else Plane.DATA,
        scope=scopes.get((request.method, canonical), Scope.READ if reads else Scope.WRITE),
        hosts=tuple(request.headers.getall("Host", [])),
        authority=_authority(request.raw_path),
        origin=_joined(request, "Origin"),
        fetch_site=_joined(request, "Sec-Fetch-Site"),
        media_type=_body_type(request),
    )


def _joined(request: web.Request, name: str) -> str | None:
    """A header; one that was sent twice is joined, so that it equals no right value."""
    return ", ".join(request.headers.getall(name, [])) or None


def _authority(target: str) -> str | None:
    """The authority of an absolute-form target; origin-form has none."""
    if target.startswith("/") or target == "*":
        return None
    try:
        return urlsplit(target).netloc
    except ValueError:  # "[" without "]": equal to no name of ours
        return target


def _body_type(request: web.Request) -> str | None:
    """A body without a type is ``application/octet-stream`` (RFC 9110 section 8.3)."""
    return request.content_type.lower() if request.can_read_body else None


def _peer_of(request: web.Request) -> Peer:
    transport = request.transport
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None or sock.family != socket.AF_UNIX:
        name = None if transport is None else transport.get_extra_info("sockname")
        # A connection that is gone has no port; -1 is equal to none, so nothing is admitted.
        return Peer(port=name[1] if name else -1)
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return Peer(uid=uid)
