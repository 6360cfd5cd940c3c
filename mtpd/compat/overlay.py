"""mtpd's own settings inside a foreign file, laid over what was translated."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.compat.remarks import Import, Path

__all__ = ["overlay", "put_list"]


def overlay(
    value: Mapping[str, object],
    at: tuple[str, ...],
    key: Path,
    lines: Mapping[Path, int],
    into: Import,
) -> None:
    """Put every setting of a table, each with its own place.

    Args:
        value: The table.
        at: Where it goes in ``into.tree``.
        key: Where it is in the file.
        lines: Line by path in the file.
        into: Takes the values.
    """
    for name, below in value.items():
        here, place = (*at, name), (*key, name)
        if isinstance(below, dict) and below:
            into.lines[here], into.keys[here] = lines.get(place, 1), place
            overlay(below, here, place, lines, into)
            continue
        into.put(here, below, line=lines.get(place, 1), key=place)
        for number in range(len(below) if isinstance(below, list) else 0):
            element = (*place, number)
            into.lines[(*here, number)] = lines.get(element, lines.get(place, 1))
            into.keys[(*here, number)] = element


def put_list(at: tuple[str, ...], places: Mapping[str, tuple[int, Path]], into: Import) -> None:
    """Put a list of texts, each with its line and key in the file."""
    line, key = next(iter(places.values()))
    into.put(at, list(places), line=line, key=key)
    for number, (where, written) in enumerate(places.values()):
        into.lines[(*at, number)], into.keys[(*at, number)] = where, written
