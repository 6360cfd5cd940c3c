"""Sockets that engines of a killed daemon left, and those that somebody still has."""

from __future__ import annotations

import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mtpd.supervise.old_sockets import sweep

if TYPE_CHECKING:
    from collections.abc import Iterator

LEFT, BOUND, HEARD = "0123456789ab.sock", "bbbbbbbbbbbb.sock", "cccccccccccc.sock"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="mtpd-t-") as name:
        yield Path(name)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def left(path: Path) -> None:
    """A socket whose process has ended."""
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def test_only_those_that_nobody_has_are_removed(folder: Path) -> None:
    with ExitStack() as stack:
        for name in (BOUND, HEARD):
            one = stack.enter_context(socket.socket(socket.AF_UNIX))
            one.bind(str(folder / name))
            if name == HEARD:
                one.listen()
        left(folder / LEFT)
        left(folder / "control.sock")
        sweep(folder)
        assert names(folder) == sorted([BOUND, HEARD, "control.sock"])
    sweep(folder)
    assert names(folder) == ["control.sock"]


def test_one_that_listens_in_another_namespace_is_kept(folder: Path) -> None:
    """Its path is in no list of ours; that it takes connections says enough."""
    empty = folder / "unix"
    empty.write_text("Num RefCount Protocol Flags Type St Inode Path\n")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(folder / HEARD))
        one.listen()
        sweep(folder, bound=empty)
        assert (folder / HEARD).exists()
    sweep(folder, bound=empty)
    assert not (folder / HEARD).exists()


def test_what_only_has_the_name_of_one_is_kept(folder: Path) -> None:
    (folder / LEFT).write_text("a file")
    (folder / BOUND).symlink_to(folder / "control.sock")
    left(folder / "control.sock")
    sweep(folder)
    assert len(names(folder)) == 3
    sweep(folder / "nowhere")
