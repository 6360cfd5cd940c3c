"""The recorded logs, and what was written down about them by hand."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtpd.engine.logs import fact

if TYPE_CHECKING:
    from mtpd.engine.facts import Fact

CORPUS = Path(__file__).parents[2] / "corpus"
LOGS = sorted(
    str(path.relative_to(CORPUS))
    for folder in ("logs", "gpu_logs")
    for path in (CORPUS / folder).glob("*.log")
)


def text(name: str) -> str:
    return (CORPUS / name).read_text(errors="replace")


def lines(name: str) -> list[str]:
    return text(name).split("\n")


def pairs(source: list[str]) -> list[tuple[str, Fact]]:
    return [(line, found) for line in source if (found := fact(line)) is not None]


@cache
def everything(name: str) -> list[tuple[str, Fact | None]]:
    """Every line of a recorded log, with its fact or None."""
    return [(line, fact(line)) for line in lines(name)]


def expected(name: str) -> list[dict[str, Any]]:
    tables: dict[str, list[dict[str, Any]]] = tomllib.loads(
        (CORPUS / "expected" / f"{name}.toml").read_text()
    )
    return next(iter(tables.values()))
