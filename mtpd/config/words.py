"""Texts in a configuration that name files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.config.locate import Path

__all__ = ["check_path"]


def check_path(path: Path, value: str) -> Iterator[tuple[Path, str]]:
    """What keeps a text from being taken for the path of a file.

    Args:
        path: The key.
        value: The text.
    """
    if not value.isprintable():
        yield path, "must be printable text on one line"
    elif value.startswith("~"):
        yield path, f"'~' is not expanded here; write the whole path instead of {value!r}"
