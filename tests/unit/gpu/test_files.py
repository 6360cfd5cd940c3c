"""Kept descriptors: read again, opened anew when they fail, and never too many."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest

from mtpd.gpu.files import Files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def files() -> Iterator[Files]:
    made = Files()
    yield made
    made.close()


def _descriptor(path: Path) -> int:
    """The open descriptor of a file in this process."""
    found = (int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers
    for number in found:
        try:
            if os.readlink(f"/proc/self/fd/{number}") == str(path):  # noqa: PTH115 - a number
                return number
        except FileNotFoundError:
            continue
    raise AssertionError(path)


def test_a_kept_file_shows_what_was_written_since(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "edge"
    for text in ("38000", "7", "-12000"):
        path.write_text(text)
        assert files.kept(str(path)) == text.encode()
    assert _descriptor(path)


def test_a_descriptor_that_fails_is_opened_anew(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "edge"
    path.write_text("38000")
    files.kept(str(path))
    # Reading an O_PATH descriptor fails, as reading one of a card that was reset does.
    dead = os.open(path, os.O_PATH)
    os.dup2(dead, _descriptor(path))
    os.close(dead)
    path.write_text("41000")
    assert files.kept(str(path)) == b"41000"
    assert files.kept(str(path)) == b"41000"


def test_a_descriptor_that_somebody_closed_is_opened_anew(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "edge"
    path.write_text("38000")
    files.kept(str(path))
    os.close(_descriptor(path))
    assert files.kept(str(path)) == b"38000"


def test_an_error_that_opening_anew_does_not_cure_is_raised(files: Files, tmp_path: Path) -> None:
    path = tmp_path / "edge"
    path.write_text("38000")
    files.kept(str(path))
    folder = os.open(tmp_path, os.O_RDONLY)
    os.dup2(folder, _descriptor(path))
    os.close(folder)
    with pytest.raises(IsADirectoryError):
        files.kept(str(path))


def test_only_so_many_files_stay_open(tmp_path: Path) -> None:
    files = Files(keep=2)
    paths = [tmp_path / str(number) for number in range(5)]
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count
    for path in paths:
        path.write_text(path.name)
    for _ in range(2):
        assert [files.kept(str(path)) for path in paths] == [b"0", b"1", b"2", b"3", b"4"]
    assert len(os.listdir("/proc/self/fd")) == before + 2  # noqa: PTH208 - a count
    files.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - a count


def test_a_file_that_cannot_be_read_leaves_nothing_open(files: Files, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count
    for _ in range(3):
        with pytest.raises(IsADirectoryError):
            files.kept(str(tmp_path))
        with pytest.raises(FileNotFoundError):
            files.kept(str(tmp_path / "none"))
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - a count


def test_a_file_that_is_replaced_again_and_again_keeps_one_descriptor(
    files: Files, tmp_path: Path
) -> None:
    path = tmp_path / "edge"
    path.write_text("0")
    files.kept(str(path))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - numbers
    for number in range(20):
        path.unlink()
        path.write_text(str(number))
        assert files.kept(str(path)) == str(number).encode()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - numbers


def test_a_reader_that_nobody_closed_takes_its_descriptors_along(tmp_path: Path) -> None:
    path = tmp_path / "value"
    path.write_text("1\n")
    reader = Files(root=str(tmp_path))
    reader.kept(str(path))
    assert _descriptor(path)
    del reader
    gc.collect()
    with pytest.raises(AssertionError):
        _descriptor(path)
