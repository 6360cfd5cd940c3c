"""What a rule for log lines is, and how numbers are taken from a match."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.engine.facts import Fact

__all__ = ["NUMBER", "RATES", "Rule", "rule", "to_float", "to_floats", "to_int"]

NUMBER = r"[\d.]+"
RATES = r"\((?P<rates>[\d., ]*)\)"


class Rule(NamedTuple):
    """One kind of line.

    Attributes:
        literal: Text that every such line contains; looked for first because it is cheap.
        read: Finds the values in a line that contains the literal.
        build: Makes the fact, or None for a line that is known to say nothing; may raise
            ValueError for numbers that are none.
        family: Set where a line that cannot be read is itself worth reporting.
    """

    literal: str
    read: Callable[[str], re.Match[str] | None]
    build: Callable[[re.Match[str]], Fact | None]
    family: str | None


def rule(
    literal: str,
    pattern: str,
    build: Callable[[re.Match[str]], Fact | None],
    *,
    family: str | None = None,
) -> Rule:
    """Compile one rule."""
    return Rule(literal, re.compile(pattern, re.ASCII).search, build, family)


def to_int(text: str | None) -> int | None:
    """An optional group as an integer."""
    return None if text is None else int(text)


def to_float(text: str | None) -> float | None:
    """An optional group as a float."""
    return None if text is None else float(text)


def to_floats(text: str | None) -> tuple[float, ...] | None:
    """An optional group ``"0.7, 0.5"`` as floats."""
    if text is None:
        return None
    return tuple(float(part) for part in text.split(",") if part.strip())
