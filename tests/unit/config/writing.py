"""Writing configurations and collecting what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.config.load import load
from mtpd.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def problems(path: Path | None, overrides: dict[str, object] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides=overrides or {})
    return caught.value.problems


def only_problem(folder: Path, text: str) -> str:
    """The one problem of an ``mtpd.toml``, without its folder."""
    (problem,) = problems(write(folder / "mtpd.toml", text))
    return problem.removeprefix(f"{folder}/")
