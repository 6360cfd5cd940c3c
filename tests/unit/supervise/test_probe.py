from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from mtpd.errors import EngineError
from mtpd.supervise.probe import EngineProbe
from mtpd.types import FailureClass, TcpEndpoint, UnixEndpoint

if TYPE_CHECKING:
    from pathlib import Path


def test_a_socket_that_was_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    EngineProbe().clear(UnixEndpoint(str(path)))
    assert not path.exists()
    EngineProbe().clear(UnixEndpoint(str(path)))


def test_what_is_not_a_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    path.write_text("precious")
    with pytest.raises(EngineError, match="not a socket") as caught:
        EngineProbe().clear(UnixEndpoint(str(path)))
    assert caught.value.failure == FailureClass.CONFIG
    assert path.read_text() == "precious"


def test_a_port_has_nothing_to_remove() -> None:
    EngineProbe().clear(TcpEndpoint(host="127.0.0.1", port=1, api_key="k"))
