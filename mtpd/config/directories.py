"""Where the daemon keeps state, sockets and engine homes.

Order: what the command line says, then systemd's variables, then the XDG base
directories. The environment is an argument; only ``mtpd.cli`` reads the real one.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Directories",
    "check_private",
    "find_config",
    "is_file",
    "is_there",
    "private_directory",
]

_SYSTEM_CONFIG = Path("/etc/mtpd/mtpd.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Directories:
    """The three directories of one daemon.

    Attributes:
        state: Database, ledger and logs; survives a reboot.
        runtime: Sockets; lost at reboot.
        cache: Private homes of engines; may be deleted at any time.
    """

    state: Path
    runtime: Path
    cache: Path

    @classmethod
    def resolve(
        cls,
        environment: Mapping[str, str],
        *,
        state: Path | None = None,
        runtime: Path | None = None,
        cache: Path | None = None,
    ) -> Directories:
        """Decide the three paths; creates nothing.

        Raises:
            StateError: Nothing names a directory, not even ``$HOME``.
        """
        chosen_state = (
            state
            or _from_systemd(environment, "STATE_DIRECTORY")
            or _xdg(environment, "XDG_STATE_HOME", ".local/state")
        )
        chosen_runtime = (
            runtime
            or _from_systemd(environment, "RUNTIME_DIRECTORY")
            or _xdg_runtime(environment)
            or chosen_state / "run"
        )
        chosen_cache = (
            cache
            or _from_systemd(environment, "CACHE_DIRECTORY")
            or (chosen_state / "cache" if state else None)
            or _xdg(environment, "XDG_CACHE_HOME", ".cache")
        )
        return cls(
            state=chosen_state.absolute(),
            runtime=chosen_runtime.absolute(),
            cache=chosen_cache.absolute(),
        )

    def create(self) -> Directories:
        """Make the missing ones with mode 0700 and check all of them.

        Raises:
            StateError: One is a symbolic link, belongs to somebody else, can be written
                by others, or cannot be made.
        """
        for path in (self.state, self.runtime, self.cache):
            private_directory(path)
        return self

    def control_socket(self, configured: str | None) -> Path:
        """The control socket: as configured, else in the runtime directory."""
        return Path(configured) if configured is not None else self.runtime / "control.sock"


def private_directory(path: Path) -> Path:
    """Make a directory that only its owner can enter, or check the one that exists.

    Raises:
        StateError: It cannot be made or must not be trusted.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except FileExistsError:
        message = f"{path} is not a directory."
        raise StateError(message, hint="Move the file away or name another directory.") from None
    except OSError as error:
        message = f"The directory {path} cannot be made: {error.strerror}."
        raise StateError(
            message, hint="Name another one with --state-dir or --runtime-dir."
        ) from error
    check_private(path, found, owner=os.geteuid())
    return path


def check_private(path: Path, found: os.stat_result, *, owner: int) -> None:
    """Check that a directory is one that only its owner can change.

    Args:
        path: The directory.
        found: What ``lstat`` says of it.
        owner: Number of the user that it has to belong to.

    Raises:
        StateError: It must not be trusted.
    """
    if stat.S_ISLNK(found.st_mode):
        message = f"{path} is a symbolic link."
        raise StateError(message, hint="Name the directory that it points to.")
    if not stat.S_ISDIR(found.st_mode):
        message = f"{path} is not a directory."
        raise StateError(message, hint="Move the file away or name another directory.")
    if found.st_uid != owner:
        message = f"{path} belongs to user {found.st_uid}, not to user {owner}."
        raise StateError(message, hint="Run mtpd as its owner or name another directory.")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        message = f"{path} can be written by other users."
        hint = f"chmod 700 {path}"
        if found.st_mode & stat.S_ISVTX:  # everybody's, as /tmp is: it must stay so
            hint = f"Name one of your own below it, e.g. {path}/mtpd."
        raise StateError(message, hint=hint)


def find_config(environment: Mapping[str, str]) -> Path | None:
    """The configuration file that is used where none is named, or None.

    ``$XDG_CONFIG_HOME/mtpd/mtpd.toml`` (default ``~/.config``), then
    ``/etc/mtpd/mtpd.toml``.
    """
    home = environment.get("HOME")
    base = environment.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else None)
    places = [Path(base) / "mtpd" / "mtpd.toml"] if base else []
    return next((place for place in (*places, _SYSTEM_CONFIG) if is_file(place)), None)


def is_there(path: Path) -> bool:
    """Whether this user sees something there; what lies in a closed directory is not seen."""
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


def is_file(path: Path) -> bool:
    """Whether this user sees a file there; ``Path.is_file`` fails in a closed directory."""
    try:
        return path.is_file()
    except OSError:
        return False


def _from_systemd(environment: Mapping[str, str], name: str) -> Path | None:
    """The variable holds several directories, separated by colons; the first is ours."""
    value = environment.get(name, "").split(":")[0]
    return Path(value) if value else None


def _xdg(environment: Mapping[str, str], name: str, below_home: str) -> Path:
    value = environment.get(name)
    # The XDG specification says that a relative path must be ignored.
    if value and Path(value).is_absolute():
        return Path(value) / "mtpd"
    home = environment.get("HOME")
    if not home:
        message = f"Neither ${name} nor $HOME is set, so there is no place for mtpd's files."
        raise StateError(message, hint="Name one with --state-dir.")
    return Path(home) / below_home / "mtpd"


def _xdg_runtime(environment: Mapping[str, str]) -> Path | None:
    value = environment.get("XDG_RUNTIME_DIR")
    return Path(value) / "mtpd" if value and Path(value).is_absolute() else None
