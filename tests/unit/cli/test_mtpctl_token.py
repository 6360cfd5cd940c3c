"""``mtpctl`` with a token: from a file or the environment, over TCP, and only there."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from mtpd.cli.client import HttpTarget, UnixTarget, find_target
from mtpd.cli.session import read_token
from mtpd.errors import MtpdError
from tests.unit.cli.support import Mtpctl

if TYPE_CHECKING:
    from pathlib import Path


def private(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def test_the_file_comes_before_the_environment(tmp_path: Path) -> None:
    path = private(tmp_path / "token", "mtpd_file\n")
    environment = {"MTPD_TOKEN": "mtpd_env"}
    assert read_token(path, environment) == "mtpd_file"
    assert read_token(None, environment) == "mtpd_env"
    assert read_token(None, {"MTPD_TOKEN": ""}) is None
    assert read_token(None, {}) is None
    with pytest.raises(MtpdError, match="MTPD_TOKEN must hold a token") as caught:
        read_token(None, {"MTPD_TOKEN": "x\ny: z"})
    assert "y: z" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n", "two words", "a\nb", "mtpd_\x00", "é"])
def test_a_file_with_something_else_is_refused_without_its_text(tmp_path: Path, text: str) -> None:
    path = private(tmp_path / "token", text)
    with pytest.raises(MtpdError, match="must hold a token and nothing else"):
        read_token(path, {})


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = private(tmp_path / "token", "mtpd_x")
    path.chmod(0o640)
    with pytest.raises(MtpdError, match="is open to other users"):
        read_token(path, {})
    with pytest.raises(MtpdError, match="cannot be read"):
        read_token(tmp_path / "none", {})


def test_only_tcp_gets_the_token() -> None:
    asked = {"environment": {"HOME": "/h"}, "token": "mtpd_x"}
    assert find_target(socket_path="/s", url=None, **asked) == UnixTarget("/s")  # type: ignore[arg-type]
    found = find_target(socket_path=None, url="http://localhost:1", **asked)  # type: ignore[arg-type]
    assert found == HttpTarget("localhost", 1, "mtpd_x")
    assert "mtpd_x" not in f"{found!r} {found}"


def test_a_token_file_without_an_address_is_no_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = private(tmp_path / "token", "mtpd_x")
    ran = Mtpctl(capsys, tmp_path / "s")("--token-file", str(path), "status")
    assert ran.code == 2
    assert "--token-file needs --url" in ran.err


def test_a_proxy_is_asked_in_tls_and_gets_no_token_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[bytes] = []

    def listen_once(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            heard.append(peer.recv(4096))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)
        server = threading.Thread(target=listen_once, args=(listener,))
        server.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        path = private(tmp_path / "token", "mtpd_canary")
        ran = Mtpctl(capsys, tmp_path / "s").bare("--url", url, "--token-file", str(path), "status")
        server.join()
    assert ran.code == 3
    assert f"No daemon answers on {url}" in ran.err
    assert heard[0].startswith(b"\x16\x03"), "a TLS handshake"
    assert b"canary" not in heard[0]
