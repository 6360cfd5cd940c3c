"""How ``mtpctl`` finds the daemon, and what it says when there is none."""

from __future__ import annotations

import socket
import struct
import threading
from typing import TYPE_CHECKING

import pytest

from mtpd.cli.client import HttpTarget, UnixTarget, find_target
from tests.fakes.backend import ScriptedBackend, served_in_thread
from tests.unit.cli.support import Mtpctl

if TYPE_CHECKING:
    from pathlib import Path


def found(
    environment: dict[str, str], *, path: str | None = None, url: str | None = None,
    system: tuple[Path, ...] = (),
) -> object:  # fmt: skip
    return find_target(socket_path=path, url=url, environment=environment, system_sockets=system)


def test_the_nearest_name_wins(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    environment = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(runtime)}
    assert found(environment) == UnixTarget(f"{runtime}/mtpd/control.sock")
    environment["RUNTIME_DIRECTORY"] = "/run/mtpd"
    assert found(environment) == UnixTarget("/run/mtpd/control.sock")
    environment["MTPD_SOCKET"] = "/named.sock"
    assert found(environment) == UnixTarget("/named.sock")
    assert found(environment, url="http://[::1]:99/") == HttpTarget("::1", 99)
    assert found(environment, url="https://gpu.lan") == HttpTarget("gpu.lan", 443, tls=True)
    assert found(environment, path="/flag.sock") == UnixTarget("/flag.sock")


def test_the_systems_socket_is_taken_where_the_users_does_not_exist(tmp_path: Path) -> None:
    own, system = tmp_path / "mtpd" / "control.sock", tmp_path / "system.sock"
    environment = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    assert found(environment, system=(system,)) == UnixTarget(str(own))
    system.touch()
    assert found(environment, system=(system,)) == UnixTarget(str(system))
    own.parent.mkdir()
    own.touch()
    assert found(environment, system=(system,)) == UnixTarget(str(own))


def test_without_any_directory_the_systems_socket_is_named(tmp_path: Path) -> None:
    assert found({}, system=(tmp_path / "a", tmp_path / "b")) == UnixTarget(f"{tmp_path}/a")


@pytest.mark.parametrize("url", ["ftp://localhost", "http://", "http://localhost:x"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|[Pp]ort"):
        found({}, url=url)


def test_the_environment_names_the_socket(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_in_thread(ScriptedBackend(), tmp_path / "s") as served:
        monkeypatch.setenv("MTPD_SOCKET", str(served.socket))
        assert Mtpctl(capsys, tmp_path).bare("status").code == 0


def test_no_daemon_is_one_sentence_with_the_way_to_start_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ctl = Mtpctl(capsys, tmp_path / "none.sock")
    for args in (["status"], ["switch", "x"], ["events"], ["--json", "status"]):
        ran = ctl(*args)
        assert (ran.code, ran.out) == (3, "")
        assert "No daemon answers on the socket" in ran.err
        assert "mtpd serve" in ran.err
    leftover = socket.socket(socket.AF_UNIX)
    leftover.bind(str(tmp_path / "none.sock"))
    leftover.close()
    assert "Connection refused" in ctl("status").err


def test_a_stream_that_breaks_ends_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: x\n")
            reset = struct.pack("ii", 1, 0)  # close as a killed peer does
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)

    thread = threading.Thread(target=serve)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    ran = Mtpctl(capsys, tmp_path).bare("--url", url, "events", "-n")
    thread.join(10)
    listener.close()
    assert ran.code == 3
    assert "Connection reset by peer" in ran.err


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<htm>", b""],
)
def test_what_is_not_mtpd_is_named_so(
    answer: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    ran = Mtpctl(capsys, tmp_path / "s")("status")
    thread.join(10)
    listener.close()
    assert ran.code == 3
    assert "not mtpd" in ran.err or "No daemon answers" in ran.err
