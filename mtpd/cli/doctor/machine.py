"""Where ``mtpctl doctor`` looks: the machine below a root, and what files and users are there."""

from __future__ import annotations

import grp
import os
import pwd
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.cli.doctor.facts import MountFacts
from mtpd.cli.doctor.rights import Account, Inode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mtpd.clock import Clock

__all__ = ["Machine", "account_named", "account_of", "folders_above", "inode_of", "there"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where to look.

    Attributes:
        root: Where ``sys``, ``proc``, ``dev`` and ``etc`` lie.
        environment: Of the command.
        clock: Says what time it is.
        driver_s: Longest that the driver of a card may take for all that is asked of it.
    """

    root: Path
    environment: Mapping[str, str]
    clock: Clock
    driver_s: float = 20.0

    def at(self, path: str | Path) -> Path:
        """Where an absolute path lies below the root."""
        return self.root / str(path).lstrip("/")

    def has(self, path: str | Path) -> bool:
        """Whether there is a file or folder below the root; what may not be seen is not there."""
        return there(self.at(path))

    def text(self, path: str) -> str | None:
        """The text of a file below the root; None where it cannot be read."""
        with suppress(OSError):
            return self.at(path).read_text(errors="replace")
        return None

    def mount(self, path: Path) -> MountFacts | None:
        """Where a path lies, by proc_pid_mountinfo(5); None where that is not known."""
        place = path.resolve()
        found: MountFacts | None = None
        for line in (self.text("proc/self/mountinfo") or "").splitlines():
            point, kind, options = _mount(line)
            if place.is_relative_to(point) and (found is None or len(point) >= len(found.point)):
                found = MountFacts(point=point, kind=kind, read_only="ro" in options)
        return found

    def mount_options(self, point: str) -> frozenset[str]:
        """The options of the file system at a mount point; none where there is none."""
        found: frozenset[str] = frozenset()
        for line in (self.text("proc/self/mountinfo") or "").splitlines():
            place, _kind, options = _mount(line)
            if place == point:
                found = options
        return found


def _mount(line: str) -> tuple[str, str, frozenset[str]]:
    """Mount point, kind and options of a line of ``mountinfo``."""
    left, _, right = line.partition(" - ")
    before, after = left.split(), right.split()
    if len(before) <= _POINT + 1 or not after:
        return "\0", "", frozenset()
    options = f"{before[_POINT + 1]},{after[-1]}".split(",")
    return _unescaped(before[_POINT]), after[0], frozenset(options)


_POINT = 4
"""Position of the mount point."""


def _unescaped(text: str) -> str:
    """Blanks are written in octal."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def account_of(uid: int) -> Account:
    """A user by number; one without a name is called by it, and has this process's groups."""
    try:
        found = pwd.getpwuid(uid)
    except KeyError:
        own = os.getgroups() if uid == os.geteuid() else []
        return Account(name=str(uid), uid=uid, gids=frozenset(own))
    gids = os.getgrouplist(found.pw_name, found.pw_gid)
    # What this session has counts: a group that was added since needs a new one.
    own = [os.getegid(), *os.getgroups()] if uid == os.geteuid() else gids
    return Account(name=found.pw_name, uid=uid, gids=frozenset(own))


def account_named(name: str, groups: tuple[str, ...]) -> Account | None:
    """A user with groups beside its own, as a unit names them; None where there is none."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return None
    gids = set(os.getgrouplist(name, found.pw_gid))
    for group in groups:
        with suppress(KeyError):
            gids.add(grp.getgrnam(group).gr_gid)
    return Account(name=name, uid=found.pw_uid, gids=frozenset(gids))


def there(path: Path) -> bool:
    """Whether there is something at a path, a broken link included, that this user can see."""
    try:
        path.lstat()
    except OSError:
        return False
    return True


def inode_of(path: Path, *, shown: str | None = None) -> Inode | None:
    """Rights of a file or folder; None where it is not there or cannot be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    try:
        group = grp.getgrgid(found.st_gid).gr_name
    except KeyError:
        group = str(found.st_gid)
    return Inode(
        path=shown or str(path),
        mode=found.st_mode,
        uid=found.st_uid,
        gid=found.st_gid,
        group=group,
    )


def folders_above(path: Path) -> tuple[Inode, ...]:
    """The folders that lead to a file, the outermost first; links are followed."""
    found = (inode_of(folder) for folder in reversed(path.resolve().parents))
    return tuple(one for one in found if one is not None)
