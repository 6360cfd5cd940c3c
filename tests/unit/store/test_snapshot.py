"""The snapshot of the last good choices: its codec, and a file that is old or new."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mtpd.errors import StoreError
from mtpd.store.snapshot import MAX_BYTES, Good, SnapshotFile, decode, encode
from mtpd.types import Absent
from mtpd.views import ArmView

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GOOD = Good(
    subject="both",
    arm=ArmView(profile="alpha", drafter="mtp", depth=2, p_min=0.0),
    fingerprint="f" * 64,
    reason="2 is the fastest depth",
    decision_id=12,
    at="2026-11-30T12:00:00.000Z",
)


def test_what_was_written_is_read_by_its_owner_alone(tmp_path: Path) -> None:
    file = SnapshotFile(tmp_path)
    assert file.read() == Absent("there is none")
    file.write([GOOD])
    assert file.read() == (GOOD,)
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["lkg.json"]


def test_a_snapshot_of_more_than_a_reader_accepts_is_not_written(tmp_path: Path) -> None:
    file = SnapshotFile(tmp_path)
    file.write([GOOD])
    with pytest.raises(StoreError, match="larger than"):
        file.write([replace(GOOD, reason="x" * 4000)] * 300)
    assert file.read() == (GOOD,)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not what mtpd wrote"),
        (b"[]", "not what mtpd wrote"),
        (b"x" * (MAX_BYTES + 1), "larger than"),
        (encode([GOOD]).replace(b'"version":1', b'"version":2'), "version"),
        (encode([GOOD]).replace(b'"depth":2', b'"depth":3'), "checksum"),
        (encode([GOOD]).replace(b'"mtp"', b'"nothing"'), "not what mtpd wrote"),
        (encode([GOOD])[:-20], "not what mtpd wrote"),
    ],
)
def test_what_is_not_as_it_was_written_is_not_believed(content: bytes, why: str) -> None:
    found = decode(content)
    assert isinstance(found, Absent)
    assert why in found.reason


def _foreign(path: Path) -> None:
    path.write_bytes(encode([GOOD]))
    os.chown(path, 12345, 12345)


def _open_to_all(path: Path) -> None:
    path.write_bytes(encode([GOOD]))
    path.chmod(0o666)


def _link(path: Path) -> None:
    (path.parent / "victim").write_bytes(encode([GOOD]))
    path.symlink_to(path.parent / "victim")


@pytest.mark.parametrize(
    "plant",
    [_open_to_all, _link, os.mkfifo, pytest.param(_foreign, marks=pytest.mark.root)],
)
def test_what_someone_planted_is_not_believed_and_not_written_to(
    tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    file = SnapshotFile(tmp_path)
    plant(file.path)
    victim = tmp_path / "victim"
    before = victim.read_bytes() if victim.exists() else None
    assert isinstance(file.read(), Absent)
    file.write([])
    assert file.read() == ()
    assert (victim.read_bytes() if victim.exists() else None) == before
