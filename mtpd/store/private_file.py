"""Small files that are replaced as a whole: read with distrust, written old or new.

Covers one file in a directory of ours. A reader never follows a link, never waits for a
pipe, and believes no file that another user owns or may touch. A writer never writes into
what lies there: it renames a new file over it. What a killed one leaves goes with the next.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "MayNotLastError",
    "OpenToOthersError",
    "UntrustedError",
    "read",
    "replace",
    "sweep",
    "temporary",
    "why_not",
]

log = structlog.get_logger()

_LEFT = re.compile(r"\.(?P<name>.+)\.(?:(?P<pid>[1-9][0-9]{0,8})-)?[0-9a-f]{8}")


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
    sweep(path)
    draft = temporary(path)
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


def temporary(path: Path) -> Path:
    """A name beside this one that tells who made it, and that ``sweep`` knows again."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")


def sweep(path: Path) -> None:
    """Remove what those left who were killed while they wrote this file.

    Only what ``temporary`` named, of this user, whose process is gone; or is this one, which
    writes a file only once at a time. What cannot be removed is left.
    """
    with suppress(OSError):
        for found in path.parent.iterdir():
            maker = _LEFT.fullmatch(found.name)
            if maker is None or maker["name"] != path.name or _lives(maker["pid"]):
                continue
            with suppress(OSError):
                _remove(found)


def _lives(pid: str | None) -> bool:
    """Whether another process has this number; None is from before the name had one."""
    if pid is None or int(pid) == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _remove(found: Path) -> None:
    seen = found.lstat()
    if seen.st_uid != os.geteuid():
        return
    if stat.S_ISDIR(seen.st_mode):
        shutil.rmtree(found)
    elif stat.S_ISREG(seen.st_mode):
        found.unlink()
    else:
        return
    log.info("store.left_over_removed", path=str(found))


def _sync_directory(directory: Path) -> None:
    """Make a rename durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
