"""Every metric, for docs/metrics.md: a table for each group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.metrics.catalogue import GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.metrics.catalogue import Spec

__all__ = ["BLOCKS"]

NONE = "none"


def _row(spec: Spec) -> str:
    labels = ", ".join(f"`{label}`" for label in spec.labels) or NONE
    return f"| `{spec.name}` | {spec.kind} | {spec.unit or NONE} | {labels} | {spec.says} |"


def _lines() -> Iterator[str]:
    for title, specs in GROUPS.items():
        yield f"### {title}\n"
        yield "| metric | type | unit | labels | meaning |"
        yield "|---|---|---|---|---|"
        yield from map(_row, specs)
        yield ""


BLOCKS = {"metrics": "\n".join(_lines()).strip()}
