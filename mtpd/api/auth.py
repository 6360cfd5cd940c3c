"""Who may ask for what: the decision, and the middleware that asks for it.

A peer on the control socket is known by its uid. Over TCP anybody on this machine, and
any web page in its browsers, may be asking, so there a name that is ours must be asked
for, and an access token decides (``mtpd.api.bearer``); as long as there is none, inference
and reads are open on the loopback, and changes are not.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import web

from mtpd import access
from mtpd.actor import acting_as
from mtpd.api import cors
from mtpd.api.bearer import NOTHING_SHOWN, Shown, credentials
from mtpd.api.gate import Gate, refusal
from mtpd.api.peer import Peer, peer_of
from mtpd.api.problem import Problem
from mtpd.proxy.callers import CALLER

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from aiohttp.typedefs import Handler, Middleware

__all__ = ["Asked", "Plane", "Policy", "Scope", "admitted", "decide", "may", "middleware", "owns"]

CONTROL_PREFIX = "/mtpd/"
OPEN = frozenset({"/healthz", "/health", "/v1/health"})
"""Whether the daemon runs, which tells nothing else: no token is asked for."""

_ADMIN = web.RequestKey("mtpd.admin", bool)
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_HTTP_PORT = 80
_PORTS = {"http": _HTTP_PORT, "https": 443}


class Scope(enum.StrEnum):
    """What a request does to the daemon."""

    READ = "read"
    WRITE = "write"


class Plane(enum.StrEnum):
    """Which half of the house a path belongs to."""

    CONTROL = "control"
    DATA = "data"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Who is trusted.

    Attributes:
        daemon_uid: Peers of the control socket with this uid, or root, may do everything.
        daemon_gid: So may members of this group; they get there only where the socket's mode
            lets the group in, as that of the socket unit does and our own does not.
        hosts: The names that are ours now beside the loopback's, ``NAME`` or ``NAME:PORT``.
        origins: Of web pages that may use the data plane.
    """

    daemon_uid: int
    daemon_gid: int
    hosts: Callable[[], tuple[str, ...]] = tuple
    origins: Callable[[], tuple[str, ...]] = tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the decision depends on.

    Attributes:
        hosts: Every ``Host`` header; one is right.
        authority: Of an absolute-form request target, else None.
        media_type: Of the body, lower case, without parameters; None without a body.
        shown: What the tokens say; not asked on the control socket.
        asks_first: Whether a browser asks what a page may do, which it does without a token.
        followed: Whether a person has followed a link to a page that tells nothing by itself.
    """

    peer: Peer
    plane: Plane
    scope: Scope
    hosts: tuple[str, ...]
    authority: str | None = None
    origin: str | None = None
    fetch_site: str | None = None
    media_type: str | None = None
    shown: Shown = NOTHING_SHOWN
    asks_first: bool = False
    followed: bool = False

    @property
    def needs(self) -> access.Scope | None:
        """What a token must be for; None where nobody needs one."""
        if self.plane is Plane.OPEN or self.peer.port is None:
            return None
        if self.plane is Plane.DATA:
            return access.Scope.INFER
        return access.Scope.READ if self.scope is Scope.READ else access.Scope.ADMIN

    @property
    def actor(self) -> str | None:
        """Who asks, for the audit trail; None over TCP without a token."""
        if self.peer.uid is not None:
            return f"uid {self.peer.uid} over the control socket"
        return None if self.shown.token is None else f"token {self.shown.token.name}"


_ASKED = web.RequestKey("mtpd.asked", Asked)
_POLICY = web.RequestKey("mtpd.policy", Policy)
_GATE = web.RequestKey("mtpd.gate", Gate)


def decide(asked: Asked, policy: Policy) -> Problem | None:
    """None when the request may go on, else what to answer."""
    refusals = _CONTROL if asked.plane is Plane.CONTROL else _DATA
    for refuse in refusals:
        problem = refuse(asked, policy)
        if problem is not None:
            return problem
    return None


def _peer(asked: Asked, policy: Policy) -> Problem | None:
    peer = asked.peer
    ours = peer.uid in {0, policy.daemon_uid} or policy.daemon_gid in peer.gids
    if peer.port is not None or ours:
        return None
    return Problem(
        slug="peer-not-allowed",
        status=403,
        title="This user may not use the control socket",
        detail=f"The peer's uid is {asked.peer.uid}; "
        f"only uid {policy.daemon_uid}, group {policy.daemon_gid} and root are admitted.",
        hint="Run the command as the user that the daemon runs as, or join its group.",
    )


def _host(asked: Asked, policy: Policy) -> Problem | None:
    if asked.peer.port is None:
        return None  # no browser can be led to a unix socket by a name
    allowed = _authorities(asked.peer.port, policy.hosts())
    named = (*asked.hosts, *(() if asked.authority is None else (asked.authority,)))
    if len(asked.hosts) == 1 and all(name.lower() in allowed for name in named):
        return None
    return Problem(
        slug="misdirected",
        status=421,
        title="This is not the host that was asked for",
        detail="The Host header must be one of " + ", ".join(sorted(allowed)) + ".",
        hint="Use the address that mtpd prints, or add the name to [server] hosts; others are "
        "refused so that a web page cannot reach the daemon by DNS rebinding.",
    )


def _authorities(port: int, hosts: tuple[str, ...]) -> frozenset[str]:
    """The names that are ours; a loopback name without a port only where 80 is meant.

    A configured name without a port is also what a reverse proxy on its usual port passes on.
    """
    bare = _LOOPBACK_NAMES if port == _HTTP_PORT else ()
    local = (f"{name}:{port}" for name in _LOOPBACK_NAMES)
    named = (f"{host}:{port}" for host in hosts if not _has_port(host))
    return frozenset((*bare, *local, *hosts, *named))


def _has_port(host: str) -> bool:
    return ":" in host.rpartition("]")[2]


def _origin(asked: Asked, policy: Policy) -> Problem | None:
    if asked.origin is None or _is_listed(asked, policy):
        return None
    if asked.peer.port is not None and _same_origin(asked, policy):
        return None
    return Problem(
        slug="cross-origin",
        status=403,
        title="Requests from other origins are refused",
        detail=f"The Origin header says {asked.origin[:200]!r}, which is not this daemon.",
        hint="mtpd answers web pages only from its own address, and its data plane those that "
        "[server] cors_origins lists.",
    )


def _is_listed(asked: Asked, policy: Policy) -> bool:
    """Whether a page of another origin may ask this: of the data plane, and over TCP."""
    within = asked.plane is not Plane.CONTROL and asked.peer.port is not None
    return within and asked.origin is not None and asked.origin.lower() in policy.origins()


def _same_origin(asked: Asked, policy: Policy) -> bool:
    """``https`` can only be a reverse proxy's, under a name that was configured."""
    scheme, _, authority = (asked.origin or "").lower().partition("://")
    port = _PORTS.get(scheme)
    if port is None:
        return False
    hosts = {host.lower().removesuffix(f":{port}") for host in asked.hosts}
    ours = {host.removesuffix(f":{port}") for host in policy.hosts()}
    return hosts == {authority.removesuffix(f":{port}")} and (scheme == "http" or hosts <= ours)


def _fetch_site(asked: Asked, policy: Policy) -> Problem | None:
    ours = asked.fetch_site in {None, "none", "same-origin"}
    if ours or asked.followed or _is_listed(asked, policy):
        return None
    return Problem(
        slug="cross-site",
        status=403,
        title="Requests from other sites are refused",
        detail=f"The Sec-Fetch-Site header says {str(asked.fetch_site)[:40]!r}.",
        hint="Open the address itself instead of following a page of another site.",
    )


def _token(asked: Asked, policy: Policy) -> Problem | None:
    if asked.needs is None or (asked.asks_first and _is_listed(asked, policy)):
        return None
    return asked.shown.lacks(asked.needs)


def _transport(asked: Asked, _policy: Policy) -> Problem | None:
    """Without any token nobody on the port can be told from anybody else."""
    if asked.scope is Scope.READ or asked.peer.port is None or asked.shown.required:
        return None
    return Problem(
        slug="control-socket-only",
        status=403,
        title="Changes are taken on the control socket only",
        detail="Over TCP the control API only answers reads, as long as there are no tokens.",
        hint="Use the control socket: mtpctl without --url, or curl --unix-socket PATH "
        "(GET /mtpd/v1/status names the path); or mtpd token add NAME --scope admin.",
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
_DATA = (_peer, _host, _origin, _fetch_site, _token)
_CONTROL = (*_DATA, _transport, _media_type)


def middleware(
    policy: Policy,
    scopes: Mapping[tuple[str, str], Scope],
    control: Container[str] = (),
    gate: Gate | None = None,
    public: Container[str] = (),
) -> Middleware:
    """Ask ``decide`` before any handler runs.

    Args:
        policy: Who is trusted.
        scopes: Scope by method and route path; other requests write unless they
            are GET or HEAD.
        control: Route paths outside ``/mtpd/`` that belong to the control plane.
        gate: Knows the tokens and is told of what was refused; None for a daemon without.
        public: Paths that tell nothing of this daemon: no token is asked for their reads.
    """

    @web.middleware
    async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked = _asked(request, scopes, control, gate)
        if request.path in public and asked.scope is Scope.READ:
            asked = replace(asked, plane=Plane.OPEN, followed=cors.followed(request.headers))
        request[_ASKED], request[_POLICY] = asked, policy
        if gate is not None:
            request[_GATE] = gate
        token = asked.shown.token
        problem = decide(asked, policy)
        if asked.origin is not None and _is_listed(asked, policy) and _host(asked, policy) is None:
            cors.admit(request, asked.origin)
            if problem is None and asked.asks_first:
                return cors.granted(request)
        if problem is not None:
            if gate is not None:
                gate.refused(request, problem, asked.actor)
            return refusal(problem, data_plane=asked.plane is not Plane.CONTROL)
        if token is not None:
            request[CALLER] = token.name
            request[_ADMIN] = token.may(access.Scope.ADMIN)
        changes = asked.plane is Plane.CONTROL and asked.scope is Scope.WRITE
        with acting_as(asked.actor):
            if gate is None or not changes or asked.actor is None:
                return await handler(request)
            async with gate.changing(request, asked.actor) as change:
                return change.answered(await handler(request))

    return authenticate


def may(request: web.Request, plane: Plane, scope: Scope) -> Problem | None:
    """What the same caller would be answered to something else; None where it may.

    A browser, which ``Sec-Fetch-Site`` shows, sends its ``Origin`` with every change.
    """
    asked = request[_ASKED]
    page = asked.origin is None and asked.fetch_site == "same-origin" and asked.hosts
    other = replace(
        asked,
        plane=plane,
        scope=scope,
        media_type=None,
        origin=f"http://{asked.hosts[0]}" if page else asked.origin,
    )
    return decide(other, request[_POLICY])


def admitted(request: web.Request) -> bool:
    """Whether one that was let through would be so now; not after its token has ended."""
    gate = request.get(_GATE)
    if gate is None or peer_of(request).port is None:
        return True
    asked = replace(request[_ASKED], shown=gate.shown(_secrets(request)))
    return decide(asked, request[_POLICY]) is None


def owns(request: web.Request) -> bool:
    """Whether a request that was let through may do everything: the daemon's user, or an admin."""
    return peer_of(request).uid is not None or request.get(_ADMIN, False)


def _asked(
    request: web.Request,
    scopes: Mapping[tuple[str, str], Scope],
    outside: Container[str],
    gate: Gate | None,
) -> Asked:
    resource = request.match_info.route.resource
    canonical = "" if resource is None else resource.canonical
    peer, reads = peer_of(request), request.method in {"GET", "HEAD"}
    return Asked(
        peer=peer,
        plane=_plane(request.path, canonical, outside, reads=reads),
        scope=scopes.get((request.method, canonical), Scope.READ if reads else Scope.WRITE),
        hosts=tuple(request.headers.getall("Host", [])),
        authority=_authority(request.raw_path),
        origin=_joined(request, "Origin"),
        fetch_site=_joined(request, "Sec-Fetch-Site"),
        media_type=_body_type(request),
        shown=NOTHING_SHOWN if gate is None or peer.port is None else gate.shown(_secrets(request)),
        asks_first=cors.asks_first(request.method, request.headers),
    )


def _plane(path: str, canonical: str, outside: Container[str], *, reads: bool) -> Plane:
    if reads and canonical in OPEN:
        return Plane.OPEN
    if (
        canonical in outside
        or path in outside
        or any(p.startswith(CONTROL_PREFIX) for p in (path, canonical))
    ):
        return Plane.CONTROL
    return Plane.DATA


def _secrets(request: web.Request) -> tuple[str, ...]:
    headers = request.headers
    return credentials(headers.getall("Authorization", []), headers.getall("X-Api-Key", []))


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
