"""Small files that are replaced as a whole: read with distrust, written old or new.

Covers one file in a directory of ours. A reader never follows a link, never waits for a
pipe, and believes no file that another user owns or may touch. A writer never writes into
what lies there: it renames a new file over it.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MayNotLastError", "OpenToOthersError", "UntrustedError", "read", "replace", "why_not"]


class UntrustedError(Exception):
    """The file must not be believed; the message follows its path in a sentence."""


class MayNotLastError(OSError):
    """The new file is there, but a power cut may bring the old one back."""


class OpenToOthersError(UntrustedError):
    """Its mode lets other users read or write it."""


def read(path: Path, *, limit: int, owner: int) -> bytes:
    """The whole file.

    Args:
        path: The file.
        limit: Bytes that it may have at most.
        owner: The user beside root whose file is believed.

    Raises:
        OSError: It is not there, is a symbolic link, or cannot be read.
        UntrustedError: It is no regular file, is too large, or other users may touch it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        found = os.fstat(descriptor)
        if (why := why_not(found, owners={0, owner})) is not None:
            raise UntrustedError(why)
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            why = "is open to other users"
            raise OpenToOthersError(why)
        content = file.read(limit + 1)
    if len(content) > limit:
        why = f"is larger than {limit} bytes"
        raise UntrustedError(why)
    return content


def why_not(found: os.stat_result, *, owners: set[int], links: int | None = None) -> str | None:
    """Why a file must not be believed, to be read after its path, or None.

    Args:
        found: What ``lstat`` or ``fstat`` says of it.
        owners: Users whose file is believed.
        links: How many names it may have; None for any number. One that is written to in its
            place must have one: the other may be anywhere.
    """
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    if found.st_uid not in owners:
        return f"belongs to user {found.st_uid}"
    if links is not None and found.st_nlink > links:
        return f"has {found.st_nlink} names (hard links)"
    return None


def replace(path: Path, content: bytes) -> None:
    """Put a file of mode 0600 in the place of the one that is there; durable on return.

    Whatever fails, and wherever the power is cut: the old file is there, or the new one.

    Raises:
        MayNotLastError: The new file is there; whether it outlives a power cut is not known.
        OSError: The disk refuses; what was there is there still.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    try:
        _sync_directory(path.parent)
    except OSError as problem:
        raise MayNotLastError(problem.errno, problem.strerror) from problem


def _sync_directory(directory: Path) -> None:
    """Make a rename durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
