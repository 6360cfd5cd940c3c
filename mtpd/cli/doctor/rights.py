"""Who may read, write or pass a file, by its permission bits. Pure.

Access control lists, capabilities and security modules are not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ENTER", "READ", "WRITE", "Account", "Inode", "barred", "may"]

READ: Final = 4
WRITE: Final = 2
ENTER: Final = 1
"""As in the permission bits of one class of users; of a file it is the right to run it."""

_ROOT: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user with all groups that its processes have."""

    name: str
    uid: int
    gids: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inode:
    """A file or folder.

    Attributes:
        mode: Permission bits, the kind of file included.
        group: Name of its group, or its number.
    """

    path: str
    mode: int
    uid: int
    gid: int
    group: str


def may(account: Account, inode: Inode, wanted: int) -> bool:
    """Whether a user has all of the wanted rights (path_resolution(7))."""
    if account.uid == _ROOT:
        return wanted != ENTER or bool(inode.mode & 0o111)
    shift = 6 if account.uid == inode.uid else 3 if inode.gid in account.gids else 0
    return (inode.mode >> shift) & wanted == wanted


def barred(account: Account, above: Iterable[Inode]) -> Inode | None:
    """The first folder on a way that a user cannot pass; None where the way is free."""
    return next((one for one in above if not may(account, one, ENTER)), None)
