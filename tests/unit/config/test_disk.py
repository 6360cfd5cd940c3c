"""Telling one state of the configuration's files from another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.config.disk import ConfigOnDisk
from mtpd.config.model import Config

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def disk(tmp_path: Path) -> ConfigOnDisk:
    (tmp_path / "mtpd.toml").write_text("")
    return ConfigOnDisk(tmp_path / "mtpd.toml", Config)


def test_it_is_the_same_while_nothing_was_saved(disk: ConfigOnDisk) -> None:
    assert disk.stamp(()) == disk.stamp(())


def test_the_file_and_every_source_count(disk: ConfigOnDisk, tmp_path: Path) -> None:
    source = tmp_path / "card.toml"
    source.write_text("x = 1")
    before = disk.stamp([str(source)])
    source.write_text("x = 10")
    between = disk.stamp([str(source)])
    disk.path.write_text("[server]")
    assert len({before, between, disk.stamp([str(source)])}) == 3


@pytest.mark.parametrize("kind", ["models", "hardware", "workloads"])
def test_a_profile_that_comes_and_goes_beside_the_file_counts(
    disk: ConfigOnDisk, tmp_path: Path, kind: str
) -> None:
    before = disk.stamp(())
    profile = tmp_path / "profiles" / kind / "new.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text("")
    assert disk.stamp(()) != before
    profile.unlink()
    assert disk.stamp(()) == before


def test_a_file_that_is_replaced_by_one_of_the_same_size_counts(disk: ConfigOnDisk) -> None:
    disk.path.write_text("a = 1")
    before = disk.stamp(())
    other = disk.path.with_suffix(".new")
    other.write_text("a = 2")
    other.replace(disk.path)
    assert disk.stamp(()) != before


def test_a_file_that_is_gone_is_told_from_one_that_is_there(disk: ConfigOnDisk) -> None:
    before = disk.stamp(())
    disk.path.unlink()
    assert disk.stamp(()) == frozenset()
    assert before
