"""Who may ask for what: the decision as a matrix."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd import access
from mtpd.access import Token
from mtpd.api.auth import Asked, Plane, Policy, Scope, decide
from mtpd.api.bearer import Shown
from mtpd.api.peer import Peer

POLICY = Policy(daemon_uid=1000, daemon_gid=2000)
PORT = 8080

# Value, and the slug of the refusal that it must lead to when nothing before it is wrong.
HOSTS: list[tuple[tuple[str, ...], str | None]] = [
    (("127.0.0.1:8080",), None),
    (("LocalHost:8080",), None),
    (("[::1]:8080",), None),
    (("localhost",), "misdirected"),
    (("localhost:80",), "misdirected"),
    (("localhost:8081",), "misdirected"),
    (("localhost.:8080",), "misdirected"),
    (("evil.example:8080",), "misdirected"),
    (("127.0.0.1.evil.example:8080",), "misdirected"),
    (("localhost:8080", "evil.example"), "misdirected"),
    (("localhost:8080", "localhost:8080"), "misdirected"),
    ((), "misdirected"),
]
SITES: list[tuple[str | None, str | None]] = [
    (None, None),
    ("none", None),
    ("same-origin", None),
    ("same-site", "cross-site"),
    ("cross-site", "cross-site"),
]
TYPES: list[tuple[str | None, str | None]] = [
    (None, None),
    ("application/json", None),
    ("text/plain", "unsupported-media-type"),
    ("application/x-www-form-urlencoded", "unsupported-media-type"),
]
ORIGINS = ("absent", "same", "null", "http://evil.example", "https", "other port")


def slug(asked: Asked) -> str | None:
    problem = decide(asked, POLICY)
    return None if problem is None else problem.slug


def origin_value(kind: str, host: str) -> str | None:
    return {
        "absent": None,
        "same": f"http://{host}",
        "https": f"https://{host}",
        "other port": "http://localhost:9999",
    }.get(kind, kind)


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("plane", Plane)
@pytest.mark.parametrize(("hosts", "bad_host"), HOSTS)
def test_over_tcp_the_first_wrong_thing_decides(
    hosts: tuple[str, ...], bad_host: str | None, plane: Plane, scope: Scope
) -> None:
    # A write over TCP is refused whatever its body is, so the types only must not matter.
    for kind, (site, bad_site), (media, _) in itertools.product(ORIGINS, SITES, TYPES):
        asked = Asked(
            peer=Peer(port=PORT),
            plane=plane,
            scope=scope,
            hosts=hosts,
            origin=origin_value(kind, hosts[0] if hosts else "localhost:8080"),
            fetch_site=site,
            media_type=media,
        )
        bad_origin = None if kind in {"absent", "same"} else "cross-origin"
        expected = bad_host or bad_origin or bad_site
        if plane is Plane.CONTROL:
            expected = expected or ("control-socket-only" if scope is Scope.WRITE else None)
        assert slug(asked) == expected, asked


@pytest.mark.parametrize("uid", [0, 1000, 1001, None])
@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("plane", Plane)
def test_on_the_control_socket_the_uid_decides(uid: int | None, plane: Plane, scope: Scope) -> None:
    for host, (site, bad_site), (media, bad_type), origin in itertools.product(
        ("localhost", "anything.example"), SITES, TYPES, (None, "http://localhost", "null")
    ):
        asked = Asked(
            peer=Peer(uid=uid),
            plane=plane,
            scope=scope,
            hosts=(host,),
            origin=origin,
            fetch_site=site,
            media_type=media,
        )
        expected = None if uid in {0, 1000} else "peer-not-allowed"
        expected = expected or (None if origin is None else "cross-origin") or bad_site
        if plane is Plane.CONTROL:
            expected = expected or (bad_type if scope is Scope.WRITE else None)
        assert slug(asked) == expected, asked


LISTED = "https://ui.example"
OPEN_TO_UI = Policy(daemon_uid=1000, daemon_gid=2000, origins=lambda: (LISTED,))


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("site", [site for site, _ in SITES])
@pytest.mark.parametrize("origin", [LISTED, LISTED.upper(), f"{LISTED}:444", "http://ui.example"])
def test_a_page_that_is_listed_may_use_the_data_plane_alone(
    origin: str, site: str | None, scope: Scope
) -> None:
    def told(plane: Plane, peer: Peer) -> str | None:
        asked = Asked(
            peer=peer,
            plane=plane,
            scope=scope,
            hosts=("localhost:8080",),
            origin=origin,
            fetch_site=site,
        )
        problem = decide(asked, OPEN_TO_UI)
        return None if problem is None else problem.slug

    is_listed = origin.lower() == LISTED
    assert told(Plane.DATA, Peer(port=PORT)) == (None if is_listed else "cross-origin")
    assert told(Plane.CONTROL, Peer(port=PORT)) == "cross-origin"
    assert told(Plane.DATA, Peer(uid=1000)) == "cross-origin"


def test_a_listed_page_must_have_asked_for_a_name_of_ours() -> None:
    asked = Asked(
        peer=Peer(port=PORT), plane=Plane.DATA, scope=Scope.READ, hosts=("evil",), origin=LISTED
    )
    problem = decide(asked, OPEN_TO_UI)
    assert problem is not None
    assert problem.slug == "misdirected"


def test_only_a_browser_that_asks_first_needs_no_token() -> None:
    shown = Shown(required=True)
    for first, origin, expected in (
        (True, LISTED, None),
        (False, LISTED, "token-missing"),
        (True, None, "token-missing"),
    ):
        asked = Asked(
            peer=Peer(port=PORT),
            plane=Plane.DATA,
            scope=Scope.WRITE,
            hosts=("localhost:8080",),
            origin=origin,
            shown=shown,
            asks_first=first,
        )
        problem = decide(asked, OPEN_TO_UI)
        assert (None if problem is None else problem.slug) == expected


def test_on_the_control_socket_members_of_the_daemons_group_are_admitted() -> None:
    def asked(*gids: int) -> Asked:
        peer = Peer(uid=1001, gids=frozenset(gids))
        return Asked(peer=peer, plane=Plane.CONTROL, scope=Scope.WRITE, hosts=("localhost",))

    assert slug(asked(100, 2000)) is None
    assert slug(asked(100)) == slug(asked()) == "peer-not-allowed"


def test_the_absolute_form_must_name_us_too() -> None:
    def asked(authority: str) -> Asked:
        return Asked(
            peer=Peer(port=PORT),
            plane=Plane.DATA,
            scope=Scope.READ,
            hosts=("localhost:8080",),
            authority=authority,
        )

    assert slug(asked("127.0.0.1:8080")) is None
    assert slug(asked("evil.example")) == "misdirected"
    assert slug(asked("localhost:8080@evil.example")) == "misdirected"
    assert slug(asked("")) == "misdirected"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "localhost:80"])
def test_a_name_without_port_is_ours_only_on_port_80(host: str) -> None:
    asked = Asked(
        peer=Peer(port=80),
        plane=Plane.CONTROL,
        scope=Scope.READ,
        hosts=(host,),
        origin=f"http://{host.removesuffix(':80')}",
    )
    assert slug(asked) is None


def test_statuses_are_the_documented_ones() -> None:
    def status(**changes: object) -> int | None:
        given: dict[str, object] = {
            "peer": Peer(port=PORT),
            "plane": Plane.CONTROL,
            "scope": Scope.WRITE,
            "hosts": ("localhost:8080",),
        }
        problem = decide(Asked(**{**given, **changes}), POLICY)  # type: ignore[arg-type]  # test table
        return None if problem is None else problem.status

    assert status() == 403
    assert status(hosts=("evil",)) == 421
    assert status(origin="http://evil") == 403
    assert status(fetch_site="cross-site") == 403
    assert status(peer=Peer(uid=5)) == 403
    assert status(peer=Peer(uid=0), media_type="text/plain") == 415
    assert status(peer=Peer(uid=0)) is None


@given(st.text(max_size=40))
def test_no_other_host_is_ever_ours(host: str) -> None:
    ours = {f"{name}:{PORT}" for name in ("localhost", "127.0.0.1", "[::1]")}
    asked = Asked(peer=Peer(port=PORT), plane=Plane.DATA, scope=Scope.READ, hosts=(host,))
    assert (slug(asked) is None) == (host.lower() in ours)


@given(st.text(max_size=60))
def test_no_foreign_origin_is_ever_the_same(origin: str) -> None:
    host = "localhost:8080"
    asked = Asked(
        peer=Peer(port=PORT), plane=Plane.DATA, scope=Scope.READ, hosts=(host,), origin=origin
    )
    assert (slug(asked) is None) == (origin.lower() == f"http://{host}")


def with_token(*scopes: access.Scope) -> Shown:
    token = Token(name="t", digest="", scopes=frozenset(scopes))
    return Shown(required=True, token=token)


@pytest.mark.parametrize(
    ("plane", "scope", "enough"),
    [
        (Plane.DATA, Scope.READ, access.Scope.INFER),
        (Plane.DATA, Scope.WRITE, access.Scope.INFER),
        (Plane.CONTROL, Scope.READ, access.Scope.READ),
        (Plane.CONTROL, Scope.WRITE, access.Scope.ADMIN),
        (Plane.OPEN, Scope.READ, None),
    ],
)
def test_over_tcp_the_scope_decides_once_there_is_a_token(
    plane: Plane, scope: Scope, enough: access.Scope | None
) -> None:
    def answer(shown: Shown) -> str | None:
        return slug(
            Asked(
                peer=Peer(port=PORT),
                plane=plane,
                scope=scope,
                hosts=("localhost:8080",),
                shown=shown,
            )
        )

    assert answer(Shown(required=True)) == (None if enough is None else "token-missing")
    for one in access.Scope:
        passes = enough is None or one in {enough, access.Scope.ADMIN}
        assert answer(with_token(one)) == (None if passes else "token-scope")


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("plane", Plane)
def test_on_the_control_socket_nobody_needs_a_token(plane: Plane, scope: Scope) -> None:
    asked = Asked(
        peer=Peer(uid=1000), plane=plane, scope=scope, hosts=("x",), shown=Shown(required=True)
    )
    assert slug(asked) is None


def test_a_token_opens_no_door_to_a_web_page() -> None:
    def answer(**changes: object) -> str | None:
        given: dict[str, object] = {
            "peer": Peer(port=PORT),
            "plane": Plane.CONTROL,
            "scope": Scope.WRITE,
            "hosts": ("localhost:8080",),
            "shown": with_token(access.Scope.ADMIN),
        }
        return slug(Asked(**{**given, **changes}))  # type: ignore[arg-type]  # test table

    assert answer() is None
    assert answer(media_type="application/json") is None
    assert answer(hosts=("evil.example:8080",)) == "misdirected"
    assert answer(origin="http://evil.example") == "cross-origin"
    assert answer(fetch_site="cross-site") == "cross-site"
    assert answer(media_type="text/plain") == "unsupported-media-type"


NAMED = Policy(
    daemon_uid=1000,
    daemon_gid=2000,
    hosts=lambda: ("gpu.lan", "proxy.example:8443", "[fd00::5]"),
)


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("gpu.lan:8080", None, None),
        ("GPU.lan:8080", "http://gpu.lan:8080", None),
        ("gpu.lan", "https://gpu.lan", None),
        ("gpu.lan", "https://gpu.lan:443", None),
        ("gpu.lan", "http://gpu.lan", None),
        ("[fd00::5]:8080", None, None),
        ("proxy.example:8443", "https://proxy.example:8443", None),
        ("localhost:8080", None, None),
        ("localhost:8080", "https://localhost:8080", "cross-origin"),
        ("gpu.lan:8080", "https://gpu.lan:8080", "cross-origin"),
        ("gpu.lan:8080", "http://gpu.lan", "cross-origin"),
        ("gpu.lan", "http://gpu.lan:8080", "cross-origin"),
        ("gpu.lan:8081", None, "misdirected"),
        ("proxy.example", None, "misdirected"),
        ("proxy.example:8080", None, "misdirected"),
        ("a.gpu.lan:8080", None, "misdirected"),
        ("gpu.lan.", None, "misdirected"),
    ],
)
def test_a_configured_host_is_ours_exactly(
    host: str, origin: str | None, expected: str | None
) -> None:
    asked = Asked(
        peer=Peer(port=PORT), plane=Plane.DATA, scope=Scope.READ, hosts=(host,), origin=origin
    )
    problem = decide(asked, NAMED)
    assert (None if problem is None else problem.slug) == expected


def test_the_trail_names_who_asks() -> None:
    def who(peer: Peer, shown: Shown) -> str | None:
        return Asked(peer=peer, plane=Plane.CONTROL, scope=Scope.WRITE, hosts=(), shown=shown).actor

    assert who(Peer(uid=7), Shown()) == "uid 7 over the control socket"
    assert who(Peer(port=1), with_token(access.Scope.ADMIN)) == "token t"
    assert who(Peer(port=1), Shown()) is None
