from __future__ import annotations

import os
import resource
import signal
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from mtpd.supervise.logfile import LogFile, log_path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_names_cannot_leave_the_directory(tmp_path: Path) -> None:
    assert log_path(tmp_path, "../../etc/x", "0000:03:00.0").parent == tmp_path
    assert log_path(tmp_path, "m", "0000:03:00.0").name == "m@0000_03_00.0.log"


def test_two_files_of_bounded_size_hold_the_newest_lines(tmp_path: Path) -> None:
    path = tmp_path / "m.log"
    file = LogFile(path, limit=100)
    for number in range(100):
        file.write([f"line {number:03}"])
    file.close()
    assert path.stat().st_size <= 100
    text = (tmp_path / "m.log.1").read_text() + path.read_text()
    assert text.endswith("line 098\nline 099\n")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["m.log", "m.log.1"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_later_start_appends(tmp_path: Path) -> None:
    for word in ("first", "second"):
        file = LogFile(tmp_path / "m.log")
        file.write([word])
        file.close()
    assert (tmp_path / "m.log").read_text() == "first\nsecond\n"


def _link(path: Path) -> None:
    (path.parent / "victim").write_text("precious")
    path.symlink_to(path.parent / "victim")


def _hard_link(path: Path) -> None:
    (path.parent / "victim").write_text("precious")
    path.hardlink_to(path.parent / "victim")


@pytest.mark.parametrize("plant", [_link, _hard_link, os.mkfifo, os.mkdir])
def test_what_someone_planted_is_not_written_to(
    tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    path = tmp_path / "m.log"
    plant(path)
    file = LogFile(path)
    file.write(["secret"])
    file.write(["again"])
    file.close()
    victim = tmp_path / "victim"
    assert not victim.exists() or victim.read_text() == "precious"


def test_a_directory_that_is_gone_loses_the_log_and_nothing_else(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "no" / "m.log")
    file.write(["lost"])
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_lines_that_were_lost_are_counted_once_it_can_be_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    file = LogFile(folder / "m.log")
    with capture_logs() as told:
        file.write(["lost", "too"])
        file.write(["lost"])
        folder.mkdir()
        file.write(["kept"])
        file.write(["next"])
    file.close()
    text = (folder / "m.log").read_text()
    assert text == "[mtpd: 3 lines were lost here]\nkept\nnext\n"
    assert [one["event"] for one in told] == ["engine.log_lost", "engine.log_resumed"]


def test_half_of_a_line_does_not_stay_on_a_disk_that_became_full(tmp_path: Path) -> None:
    path = tmp_path / "m.log"
    file = LogFile(path)
    file.write(["first"])
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, most))  # as a disk with 14 bytes left
    try:
        with capture_logs():
            file.write(["x" * 100])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.read_text() == "first\n"
    file.write(["last"])
    file.close()
    assert path.read_text() == "first\n[mtpd: 1 lines were lost here]\nlast\n"
