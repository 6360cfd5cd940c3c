"""Looking at ports, directories, model files, limits, tokens and clock."""

from __future__ import annotations

import os
import resource
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from mtpd.cli.doctor.facts import (
    DirectoryFacts,
    HostFacts,
    Listener,
    ModelFile,
    SocketFacts,
    SystemFacts,
    TokenFacts,
)
from mtpd.cli.doctor.machine import folders_above, inode_of, there
from mtpd.config.directories import check_private
from mtpd.config.files import named_files, unreadable
from mtpd.config.locate import dotted
from mtpd.config.sandbox import is_hidden
from mtpd.engine.gguf import GgufError, read_header
from mtpd.errors import StateError
from mtpd.gpu import cgroup
from mtpd.store.token_file import TokenFile
from mtpd.types import Absent, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.cli.doctor.machine import Machine
    from mtpd.cli.doctor.rights import Account
    from mtpd.config.model import Config, ServerConfig

__all__ = ["host", "model_files", "sockets", "state", "system", "tokens"]

_MANAGER: Final = 1
"""The service manager, which listens for the daemon where a socket unit is installed."""
_SPARE: Final = 256
"""Descriptors for the daemon itself: database, logs, engines, dashboards."""
_PER_CLIENT: Final = 2
"""Its connection, and the one to the engine."""
_HIDING: Final = frozenset(
    f"hidepid={how}" for how in ("1", "2", "4", "noaccess", "invisible", "ptraceable")
)
_ANY: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not bound


def sockets(server: ServerConfig, control: Path, *, units: bool) -> SocketFacts:
    """Where a daemon that does not run is to be reached, and who is there already.

    Args:
        server: What is configured.
        control: The control socket.
        units: Whether units of systemd are installed.
    """
    taken = _listener(server.listen_host, server.listen_port) if server.listen_port else None
    if units and taken is not None and taken.pid == _MANAGER:
        taken = None
    return SocketFacts(
        listen=server.listen, taken_by=taken, control=str(control), remote=server.remote
    )


def _listener(host: str, port: int) -> Listener | None:
    for one in psutil.net_connections(kind="tcp"):
        if one.status != psutil.CONN_LISTEN or not one.laddr or one.laddr.port != port:
            continue
        if one.laddr.ip in {host, *_ANY} or host in _ANY:
            name = None
            with suppress(psutil.Error, TypeError):
                name = psutil.Process(one.pid).name() if one.pid else None
            return Listener(pid=one.pid, name=name)
    return None


def state(machine: Machine, path: Path, account: Account) -> DirectoryFacts | Absent:
    """The state directory, or where it would be made; changes nothing."""
    nearest = next((one for one in (path, *path.parents) if there(one)), path)
    inode = inode_of(nearest)
    if inode is None:
        return Absent(f"{nearest} cannot be looked at by this user: sudo mtpctl doctor")
    problem = None
    if nearest == path:
        try:
            check_private(path, path.lstat(), owner=account.uid)
        except StateError as error:
            problem = str(error), error.hint or ""
    try:
        free: Value[int] | Absent = Value(shutil.disk_usage(nearest).free, "statvfs")
    except OSError as error:
        free = Absent(f"the free space is unknown: {error.strerror}")
    return DirectoryFacts(
        path=str(path),
        nearest=inode,
        problem=problem,
        free_bytes=free,
        mount=machine.mount(nearest),
        above=folders_above(nearest),
    )


def model_files(machine: Machine, loaded: Config, *, service: bool) -> tuple[ModelFile, ...]:
    """Every file that a model names, once per key."""
    return tuple(_files(machine, loaded, service=service))


def _files(machine: Machine, loaded: Config, *, service: bool) -> Iterator[ModelFile]:
    for name, profile in loaded.profiles.items():
        for key, text in () if profile.opaque else named_files(profile):
            at, path = dotted(("models", name, *key)), Path(text)
            inode = inode_of(path)
            yield ModelFile(
                key=at,
                origin=loaded.origins.get(at, "default"),
                path=text,
                problem=_problem(text),
                inode=inode,
                above=() if inode is None else folders_above(path),
                size_bytes=_size_bytes(path),
                mount=None if inode is None else machine.mount(path),
                hidden=service and inode is not None and is_hidden(text),
            )


def _size_bytes(path: Path) -> int | None:
    """The size of a file; None where it is not there, or not any more."""
    with suppress(OSError):
        return path.stat().st_size
    return None


def _problem(text: str) -> str | None:
    """Why a file cannot be served, as a predicate: not there, no GGUF, or cut short."""
    found = unreadable(text)
    if found is not None:
        return found
    try:
        header = read_header(Path(text))
    except GgufError as error:
        return f"cannot be used: {error}"
    if header.missing_bytes:
        return f"is cut short: {header.missing_bytes} bytes of its tensors are missing"
    return None


def host(
    machine: Machine, server: ServerConfig, *, daemon: int | None, unit: int | None
) -> HostFacts:
    """Memory and descriptors.

    Args:
        machine: Where.
        server: Says how many clients may wait.
        daemon: The daemon that answers, or None.
        unit: Descriptors that the service's unit allows; None where there is no service.
    """
    own = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = own if unit is None else (unit, unit)
    if daemon is not None:
        with suppress(psutil.Error):
            files = psutil.Process(daemon).rlimit(psutil.RLIMIT_NOFILE)
    return HostFacts(
        available_bytes=psutil.virtual_memory().available,
        cgroup_bytes=cgroup.headroom(machine.root),
        oom_kills=cgroup.oom_kills(machine.root),
        files=files,
        files_needed=_SPARE + _PER_CLIENT * server.max_waiting,
    )


def tokens(machine: Machine, loaded: Config, folder: Path, account: Account) -> TokenFacts | None:
    """The access tokens; None where the file is another user's and cannot be looked at."""
    file = TokenFile(folder, machine.clock, owner=account.uid)
    if account.uid != os.geteuid() and not os.access(folder, os.R_OK | os.X_OK):
        return None
    try:
        count, problem = len(file.read()), None
    except StateError as error:
        count, problem = 0, (str(error), error.hint or "")
    return TokenFacts(path=str(file.path), problem=problem, count=count + len(loaded.tokens))


def system(machine: Machine) -> SystemFacts:
    """Clock and ``/proc``."""
    options = machine.mount_options("/proc")
    return SystemFacts(
        year=machine.clock.utc().year,
        boot_id=bool((machine.text("proc/sys/kernel/random/boot_id") or "").strip()),
        hides_processes=bool(options & _HIDING),
    )
