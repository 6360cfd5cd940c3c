from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.cli.doctor.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Shorter than pytest's, in whose folders of parallel runs a socket's path is too long."""
    with tempfile.TemporaryDirectory(prefix="mtpd-t-") as folder:
        yield Path(folder)


@pytest.fixture
def world(home: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A machine that is well; the home of the process is its home, too."""
    made = World.healthy(home)
    for name in ("STATE_DIRECTORY", "RUNTIME_DIRECTORY", "CACHE_DIRECTORY", "MTPD_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.chdir(home)
    return made
