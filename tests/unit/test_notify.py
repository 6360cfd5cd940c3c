"""The protocol of sd_notify: where messages go, and what asks for signs of life."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from mtpd.notify import Notifier, watchdog_s

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("abstract", [False, True])
def test_a_message_is_one_datagram_with_a_field_per_line(tmp_path: Path, *, abstract: bool) -> None:
    name = f"mtpd-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}" if abstract else name)
        notifier = Notifier(f"@{name}" if abstract else name)
        notifier.send("READY=1", "STATUS=no model is loaded")
        notifier.send("STOPPING=1")
        assert manager.recv(4096) == b"READY=1\nSTATUS=no model is loaded"
        assert manager.recv(4096) == b"STOPPING=1"


@pytest.mark.parametrize("address", [None, ""])
def test_without_a_service_manager_nothing_is_sent(address: str | None) -> None:
    with capture_logs() as said:
        Notifier(address).send("READY=1")
    assert said == []


def test_a_manager_that_is_gone_is_told_in_the_log_and_hurts_nobody(tmp_path: Path) -> None:
    with capture_logs() as said:
        Notifier(str(tmp_path / "gone")).send("READY=1")
    (line,) = said
    assert (line["event"], line["reason"]) == ("notify.not_sent", "No such file or directory")


def test_a_manager_that_does_not_read_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        with capture_logs() as said:
            for _ in range(100_000):  # far more than any queue of datagrams holds
                Notifier(str(tmp_path / "notify")).send("WATCHDOG=1")
                if said:
                    break
    assert said[0]["reason"] == "Resource temporarily unavailable"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "20000000"}, 20.0),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_meant_for_us_and_has_a_time(
    environment: dict[str, str], expected: float | None
) -> None:
    assert watchdog_s(environment) == expected
