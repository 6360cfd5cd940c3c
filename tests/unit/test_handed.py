"""Listening sockets that a service manager hands over: which are taken, and what is refused."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from mtpd.config.model import ServerConfig
from mtpd.errors import ConfigError
from mtpd.listen import handed, url_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mtpd.listen import Handed

FIRST = 200


@contextmanager
def given(
    *sockets: socket.socket, names: str | None = None, pid: int | None = None
) -> Iterator[Handed]:
    """What is taken over of these sockets; they themselves are closed."""
    for number, sock in enumerate(sockets, FIRST):
        os.dup2(sock.fileno(), number)
        sock.close()
    environment = {"LISTEN_FDS": str(len(sockets)), "LISTEN_PID": str(pid or os.getpid())}
    if names is not None:
        environment["LISTEN_FDNAMES"] = names
    taken = handed(environment, first=FIRST)
    try:
        yield taken
    finally:
        taken.close()


def tcp(host: str = "127.0.0.1") -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.bind((host, 0))
    sock.listen()
    return sock


def unix(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen()
    return sock


@pytest.mark.parametrize("names", ["api:control", "mtpd.socket:other", "unknown", None, ""])
def test_the_family_says_what_a_socket_is_for(tmp_path: Path, names: str | None) -> None:
    with given(tcp(), unix(tmp_path / "s"), names=names) as taken:
        assert [sock.fileno() for sock in (*taken.tcp, *taken.unix)] == [FIRST, FIRST + 1]
        assert taken.control_path == tmp_path / "s"
        assert not any(sock.get_inheritable() for sock in (*taken.tcp, *taken.unix))


def test_several_addresses_are_answered_on() -> None:
    with given(tcp(), tcp("127.0.0.2"), names="api:api") as taken:
        assert len(taken.tcp) == 2
        assert taken.control_path is None


def test_who_is_not_meant_takes_nothing() -> None:
    assert handed({}) == handed({"LISTEN_FDS": "2", "LISTEN_PID": "1"})
    assert not handed({"LISTEN_FDS": "two", "LISTEN_PID": str(os.getpid())}).tcp
    assert not handed({"LISTEN_FDS": "2"}).tcp


@pytest.mark.parametrize(
    ("kind", "names", "told"),
    [
        ("control", "api", "socket 200 (api) is not a stream socket of the right family"),
        ("api", "control", "socket 200 (control) is not a stream socket of the right family"),
        ("datagram", "api", "socket 200 (api) is not a stream socket of the right family"),
        ("silent", "", "socket 200 is not a stream socket of the right family"),
        ("file", "api", "socket 200 (api) cannot be used: Socket operation on non-socket"),
        ("nothing", "api", "socket 200 (api) cannot be used: Bad file descriptor"),
    ],
)
def test_what_cannot_be_answered_on_is_a_mistake_of_the_units(
    tmp_path: Path, kind: str, names: str, told: str
) -> None:
    made = {
        "control": lambda: unix(tmp_path / "s").detach(),
        "api": lambda: tcp().detach(),
        "datagram": lambda: socket.socket(type=socket.SOCK_DGRAM).detach(),
        "silent": lambda: socket.socket().detach(),
        "file": lambda: os.open("/dev/null", os.O_RDONLY),
    }
    if kind in made:
        number = made[kind]()
        os.dup2(number, FIRST)
        os.close(number)
    environment = {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid()), "LISTEN_FDNAMES": names}
    try:
        with pytest.raises(ConfigError) as caught:
            handed(environment, first=FIRST)
    finally:
        if kind == "file":
            os.close(FIRST)
    assert caught.value.problems == (f"the service manager's {told}",)
    assert caught.value.exit_code == 78


def test_an_address_that_is_not_the_configured_one_is_told() -> None:
    with given(tcp()) as taken:
        port = taken.tcp[0].getsockname()[1]
        assert taken.contradiction(ServerConfig(listen_port=port)) is None
        assert taken.contradiction(ServerConfig(listen_port=9)) == (
            f"the socket unit listens on http://127.0.0.1:{port}; server.listen 127.0.0.1:9 has no"
            " effect"
        )
    with given() as nothing:
        assert nothing.contradiction(ServerConfig(listen_port=9)) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])  # noqa: S104 - that it is, is the matter
def test_a_unit_does_not_open_to_other_machines_what_is_configured_for_this_one(host: str) -> None:
    with given(tcp("127.0.0.1"), tcp(host)) as taken:
        with pytest.raises(ConfigError) as caught:
            taken.contradiction(ServerConfig())
        (told,) = caught.value.problems
        assert told == (
            f"the socket unit listens on {url_of(taken.tcp[1])}, which other machines can reach,"
            " but server.listen is 127.0.0.1:8080"
        )
        port = taken.tcp[1].getsockname()[1]
        remote = ServerConfig(listen_host=host, listen_port=port, hosts=("gpu.lan",))
        assert taken.contradiction(remote) is None
