"""A home without any configuration, for the commands that need no daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.cli import configured

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without any configuration, on a machine without a llama-server."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(configured, "SYSTEM_ENGINE_CONFIG", tmp_path / "no.ini")
    return tmp_path
