"""Reading sysfs and procfs: on kept descriptors, and reopened when a card came back.

A read of a kept descriptor costs a few microseconds, opening one several times that.
After a reset, a suspend or a rebind the kernel fails reads of old descriptors with
ENODEV, or with EPERM while the card sleeps; the file is then opened once more.
"""

from __future__ import annotations

import errno
import os
import weakref
from contextlib import suppress
from typing import Final

__all__ = ["Files", "reason_of"]

_READ_BYTES: Final = 4096
"""A sysfs attribute is at most one page."""

_REOPEN: Final = frozenset({errno.ENODEV, errno.EPERM, errno.EBADF, errno.ESTALE, errno.EIO})


class Files:
    """Reads files below a root.

    Args:
        root: What stands for ``/``.
        keep: Most descriptors kept open; beyond them files are opened for each read.
    """

    def __init__(self, *, root: str = "/", keep: int = 256) -> None:
        self.root = root
        self._keep = keep
        self._kept: dict[str, int] = {}
        # A reader that nobody closed takes its descriptors along.
        weakref.finalize(self, _close_all, self._kept)

    def at(self, path: str) -> str:
        """Where a path like ``sys/class/drm`` lies below the root."""
        return os.path.join(self.root, path)  # noqa: PTH118 - a Path costs as much as the read

    def kept(self, path: str) -> bytes:
        """One page of a file that is read again and again; raises OSError."""
        descriptor = self._kept.get(path)
        if descriptor is not None:
            try:
                # A file that lost its name still answers, for a card that is gone.
                if os.fstat(descriptor).st_nlink:
                    return os.pread(descriptor, _READ_BYTES, 0)
            except OSError as error:
                if error.errno not in _REOPEN:
                    raise
            self._drop(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(descriptor, _READ_BYTES, 0)
        except BaseException:
            os.close(descriptor)
            raise
        if len(self._kept) < self._keep:
            self._kept[path] = descriptor
        else:
            os.close(descriptor)
        return data

    def once(self, path: str) -> bytes:
        """A file of some kilobytes that is seldom read; raises OSError."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 16 * _READ_BYTES)
        finally:
            os.close(descriptor)

    def text(self, path: str) -> str | None:
        """The stripped text of a file; None where it cannot be read or is empty."""
        try:
            return self.once(path).decode("utf-8", "replace").strip() or None
        except OSError:
            return None

    def write(self, path: str, text: str) -> None:
        """Write a control file in one call; raises OSError."""
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def entries(self, folder: str) -> list[str]:
        """Names in a folder, sorted; empty where it cannot be read."""
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208 - names are all that is needed
        except OSError:
            return []

    def close(self) -> None:
        """Close every kept descriptor."""
        _close_all(self._kept)

    def _drop(self, path: str) -> None:
        with suppress(OSError):
            os.close(self._kept.pop(path))


def _close_all(kept: dict[str, int]) -> None:
    while kept:
        with suppress(OSError):
            os.close(kept.popitem()[1])


def reason_of(error: OSError) -> str:
    """The name of an error number, e.g. ``EPERM``."""
    return errno.errorcode.get(error.errno or 0, str(error))
