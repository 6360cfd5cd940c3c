"""Numbers, sizes and lists of ids as text; unknown has its own sign. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ALPHA", "NONE", "number", "percent", "ranges", "size"]

ALPHA = "\N{GREEK SMALL LETTER ALPHA}"
"""Conditional acceptance; the position follows it."""

NONE = "\N{EN DASH}"
"""What is shown for unknown; never 0."""

_GIB = 1024**3
_MIB = 1024**2


def number(value: float | None, digits: int) -> str:
    """A number, or the sign for unknown."""
    return NONE if value is None else f"{value:.{digits}f}"


def percent(value: float | None, digits: int) -> str:
    """A share of one in percent, or the sign for unknown."""
    return NONE if value is None else f"{100 * value:.{digits}f}%"


def size(count: int | None) -> str:
    """Bytes in GiB, or MiB below one GiB."""
    if count is None:
        return NONE
    return f"{count / _GIB:.2f} GiB" if count >= _GIB else f"{count / _MIB:.1f} MiB"


def ranges(numbers: Sequence[int]) -> str:
    """Numbers with runs drawn together: 1-6,9."""
    runs: list[list[int]] = []
    for one in sorted(set(numbers)):
        if runs and one == runs[-1][-1] + 1:
            runs[-1][1:] = [one]
        else:
            runs.append([one])
    return ",".join("-".join(map(str, run)) for run in runs)
