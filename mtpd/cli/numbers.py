"""Lists of numbers on the command line: ``0-3``, ``0,2,4`` or a mixture."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MAX_DEPTH", "Depths", "Ids"]

MAX_DEPTH = 64

_RANGE = re.compile(r"\s*(\d{1,18})(?:\s*-\s*(\d{1,18}))?\s*")


class _Numbers(click.ParamType[tuple[int, ...]]):
    """Numbers and ranges of them; ascending, each once."""

    lowest: ClassVar[int]
    highest: ClassVar[int]
    most: ClassVar[int]
    example: ClassVar[str]

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Parse, or fail with the form that is wanted."""
        if isinstance(value, tuple):
            return value
        found: set[int] = set()
        for part in self._parts(str(value), param, ctx):
            if len(part) + len(found) > self.most:
                self.fail(f"{value!r} names more than {self.most} {self.name}", param, ctx)
            found.update(part)
        return tuple(sorted(found))

    def _parts(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> Iterator[range]:
        for part in value.split(","):
            match = _RANGE.fullmatch(part)
            if match is None:
                self.fail(
                    f"{value!r} is not a list of {self.name} such as {self.example}", param, ctx
                )
            low, high = int(match[1]), int(match[2] or match[1])
            if not self.lowest <= low <= high <= self.highest:
                said = f"{part.strip()!r} is not a range within {self.lowest}-{self.highest}"
                self.fail(said, param, ctx)
            yield range(low, high + 1)


class Depths(_Numbers):
    """Draft depths."""

    name = "depths"
    lowest, highest, most = 0, MAX_DEPTH, 2 * MAX_DEPTH
    example = "0-3 or 0,2,4"


class Ids(_Numbers):
    """Numbers of stored rows; so many fit into one request."""

    name = "ids"
    lowest, highest, most = 1, 10**18 - 1, 400
    example = "1-12,17"
