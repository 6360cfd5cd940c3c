"""Looking at everything: the daemon if one answers, the configuration, then the machine."""

from __future__ import annotations

import functools
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from mtpd import __version__
from mtpd.cli.client import SYSTEM_SOCKETS
from mtpd.cli.configured import SYSTEM_ENGINE_CONFIG, engine_warnings, unread
from mtpd.cli.doctor import look_cards, look_daemon, look_place, look_units
from mtpd.cli.doctor.facts import (
    ConfigFacts,
    DaemonFacts,
    DeviceFacts,
    EngineFacts,
    Facts,
    HiddenFacts,
    Lack,
    SocketFacts,
)
from mtpd.cli.doctor.machine import account_of, there
from mtpd.cli.loading import load_config
from mtpd.config.checks import Listen, parse_listen
from mtpd.config.directories import Directories, find_config
from mtpd.config.model import Config, ServerConfig
from mtpd.config.remarks import not_honoured
from mtpd.config.sandbox import SERVICE_PATH
from mtpd.engine.binary import on_path
from mtpd.engine.command import build
from mtpd.engine.needed import find_needed
from mtpd.errors import BinaryError, ConfigError, StateError
from mtpd.types import Absent, TcpEndpoint, UnixEndpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mtpd.cli.client import Client
    from mtpd.cli.doctor.facts import DirectoryFacts
    from mtpd.cli.doctor.look_daemon import Answer
    from mtpd.cli.doctor.look_units import Unit
    from mtpd.cli.doctor.machine import Machine
    from mtpd.cli.doctor.rights import Account
    from mtpd.config.model import Profile
    from mtpd.types import EngineBinary
    from mtpd.views import StatusView

__all__ = ["Wanted", "collect"]

_SERVICE_DIRECTORIES: Final = {
    "STATE_DIRECTORY": "/var/lib/mtpd",
    "RUNTIME_DIRECTORY": "/run/mtpd",
    "CACHE_DIRECTORY": "/var/cache/mtpd",
}
"""What systemd tells the service."""
_MISPLACED: Final = {"evicted", "spilled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line names; None for what is found."""

    config: Path | None = None
    state: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whose:
    """Whose daemon is looked at."""

    account: Account
    service: bool
    unit: Unit | None
    directories: Directories | Absent
    path_env: str


def collect(client: Client, machine: Machine, wanted: Wanted) -> Facts:
    """Look at everything; changes nothing, and asks the engine only for its ``--help``."""
    answer = look_daemon.ask(client)
    units = look_units.installed(machine)
    path = _config_path(machine, wanted, answer, units)
    config, loaded = _load(path, wanted)
    socket = None if loaded is None else loaded.server.control_socket
    unit = next((one for one in units if not one.facts.user and one.config == path), None)
    whose = _whose(machine, wanted, answer, unit, socket)
    engine = None if loaded is None else _engine(loaded, whose.path_env)
    status = answer.status
    pid = None if status is None else status.pid
    state = _state(machine, whose)
    server = loaded.server if loaded is not None else ServerConfig()
    return Facts(
        version=__version__,
        account=whose.account,
        visitor=_visitor(whose.account),
        service=whose.service,
        config=config,
        engine=engine,
        hidden=_hidden(machine),
        device=_devices(machine, loaded, engine, answer),
        sockets=_sockets(answer, loaded, whose, units),
        state=state,
        models=()
        if loaded is None
        else look_place.model_files(machine, loaded, service=whose.service),
        host=look_place.host(
            machine,
            server,
            daemon=pid,
            unit=whose.unit.files if whose.unit is not None else None,
        ),
        tokens=None
        if loaded is None or isinstance(whose.directories, Absent)
        else look_place.tokens(machine, loaded, whose.directories.state, whose.account),
        system=look_place.system(machine),
        units=tuple(unit.facts for unit in units),
        daemon=_daemon(answer, loaded),
    )


def _visitor(account: Account) -> Account | None:
    """Who asks, where the daemon runs as somebody else and root may do everything anyway."""
    uid = os.geteuid()
    return None if uid in {0, account.uid} else account_of(uid)


def _config_path(
    machine: Machine, wanted: Wanted, answer: Answer, units: tuple[Unit, ...]
) -> Path | None:
    """The file that was named, the daemon's, the one that would be found, or the unit's."""
    if wanted.config is not None:
        return wanted.config
    if answer.status is not None:
        named = answer.status.config
        return None if named is None else Path(named.path)
    found = find_config(machine.environment)
    return found or next((one.config for one in units if one.config is not None), None)


def _whose(
    machine: Machine,
    wanted: Wanted,
    answer: Answer,
    unit: Unit | None,
    socket: str | None,
) -> _Whose:
    """Whom the daemon runs as: the one that answers, the service with this file, or us."""
    account = account_of(os.geteuid())
    service = unit is not None and unit.facts.account is not None
    if unit is not None and unit.facts.account is not None:
        account = unit.facts.account
    if answer.status is not None and not service:
        account = _owner(machine, answer.status.pid) or account
    account = answer.refused_by or account
    environment = machine.environment
    if service:
        environment = {**environment, **_SERVICE_DIRECTORIES}
    try:
        directories: Directories | Absent = _directories(environment, wanted, answer, socket)
    except StateError as error:
        directories = Absent(str(error))
    path_env = SERVICE_PATH if service else environment.get("PATH", os.defpath)
    return _Whose(
        account=account, service=service, unit=unit, directories=directories, path_env=path_env
    )


def _directories(
    environment: Mapping[str, str], wanted: Wanted, answer: Answer, socket: str | None
) -> Directories | Absent:
    """Where the daemon keeps its files; the one that answers need not keep them at the usual place.

    Raises:
        StateError: Nothing names a directory.
    """
    status = answer.status
    if answer.refused_by is not None and wanted.state is None:
        return Absent(f"where {answer.refused_by.name} keeps it is not known: name --state-dir")
    told = None if status is None or status.state_dir is None else Path(status.state_dir)
    found = Directories.resolve(environment, state=wanted.state or told)
    if told is not None:
        return found
    usual = {str(found.control_socket(socket)), *map(str, SYSTEM_SOCKETS)}
    if status is not None and wanted.state is None and status.control_socket not in usual:
        return Absent("where the daemon that answers keeps it is not known: name --state-dir")
    return found


def _owner(machine: Machine, pid: int) -> Account | None:
    try:
        uid = machine.at(f"proc/{pid}").stat().st_uid
    except OSError:
        return None
    return account_of(uid)


def _load(path: Path | None, wanted: Wanted) -> tuple[ConfigFacts, Config | None]:
    named = None if path is None else str(path)
    others = unread(wanted.config, path)
    try:
        loaded = load_config(path)
    except ConfigError as error:
        return ConfigFacts(path=named, problems=error.problems, unread=others), None
    facts = ConfigFacts(
        path=named, ignored=not_honoured(loaded), unread=others, models=len(loaded.profiles)
    )
    return facts, loaded


def _engine(loaded: Config, path_env: str) -> EngineFacts:
    spec = loaded.engine.binary
    origin = loaded.origins.get("engine.binary", "default")
    path = _engine_path(spec, path_env)
    mode = None
    with suppress(OSError):  # it is not there, which is told
        mode = None if path is None else stat.S_IMODE(path.stat().st_mode)
    named = None if path is None else str(path)
    try:
        binary = anyio.run(lambda: find_needed(loaded, path_env=path_env))
    except BinaryError as error:
        return EngineFacts(spec=spec, origin=origin, path=named, mode=mode, error=str(error))
    return EngineFacts(
        spec=spec,
        origin=origin,
        label=binary.label,
        path=named,
        mode=mode,
        lacks=tuple(_lacks(loaded, binary)),
        embedded=binary.kind != "external",
        odd=engine_warnings(loaded, binary),
    )


def _engine_path(spec: str, path_env: str) -> Path | None:
    match spec:
        case "embedded":
            return None
        case "auto":
            return on_path("llama-server", path_env)
        case _ if "/" in spec:
            return Path(spec)
        case _:
            return on_path(spec, path_env)


def _lacks(loaded: Config, binary: EngineBinary) -> Iterator[Lack]:
    """Arms whose command this engine would not understand, each reason once."""
    if binary.kind == "none":
        return
    said: set[str] = set()
    for profile in loaded.profiles.values():
        if profile.opaque is not None:
            continue
        for depth in sorted({0, profile.initial_arm().depth, profile.drafter.max_depth}):
            why = _refusal(loaded, binary, profile, depth)
            if why is not None and why not in said:
                said.add(why)
                yield Lack(arm=str(profile.arm(depth)), says=why)


def _refusal(loaded: Config, binary: EngineBinary, profile: Profile, depth: int) -> str | None:
    """Why the command of an arm cannot be made with the options of this engine."""
    unix = UnixEndpoint("/run/mtpd/engine.sock")
    try:
        build(
            binary=binary,
            profile=profile,
            arm=profile.arm(depth),
            endpoint=unix if binary.unix_socket else TcpEndpoint("127.0.0.1", 8081, ""),
            threads=loaded.engine.threads,
            device_present=binary.kind == "external",
            home="/",
            headroom_mib=loaded.budget.headroom_mib,
        )
    except BinaryError as error:
        return str(error)
    return None


def _hidden(machine: Machine) -> HiddenFacts:
    environment = machine.environment
    base = environment.get("XDG_CONFIG_HOME") or f"{environment.get('HOME', '')}/.config"
    own = Path(base) / "llama.cpp" / "config.ini"
    return HiddenFacts(
        system=str(SYSTEM_ENGINE_CONFIG) if machine.has(SYSTEM_ENGINE_CONFIG) else None,
        own=str(own) if there(own) else None,
        variables=tuple(sorted(name for name in environment if name.startswith("LLAMA_ARG_"))),
    )


def _devices(
    machine: Machine, loaded: Config | None, engine: EngineFacts | None, answer: Answer
) -> DeviceFacts:
    """Cards, unless every engine runs on the processor anyway."""
    if engine is not None and engine.embedded:
        return DeviceFacts()
    hardware = None if loaded is None else loaded.hardware
    ours: set[int] = set()
    if answer.status is not None:
        engines = (one.pid for one in answer.status.engines)
        ours = {answer.status.pid, *(pid for pid in engines if pid is not None)}
    look = functools.partial(
        look_cards.look,
        machine,
        wanted_w=None if hardware is None else hardware.power_cap_w,
        caps={one.device: one.power_cap for one in answer.devices},
        ours=ours,
    )
    return anyio.run(look)


def _sockets(
    answer: Answer, loaded: Config | None, whose: _Whose, units: tuple[Unit, ...]
) -> SocketFacts | None:
    """Those of the daemon that answers, else those that it would have."""
    status = answer.status
    if answer.refused_by is not None and loaded is not None:
        server = loaded.server
        return SocketFacts(listen=server.listen, taken_by=None, control=None, remote=server.remote)
    if status is not None:
        listen = parse_listen(status.listen)
        return SocketFacts(
            listen=status.listen,
            taken_by=None,
            control=status.control_socket,
            remote=isinstance(listen, Listen) and listen.remote,
        )
    if loaded is None or isinstance(whose.directories, Absent):
        return None
    control = whose.directories.control_socket(loaded.server.control_socket)
    return look_place.sockets(loaded.server, control, units=bool(units))


def _state(machine: Machine, whose: _Whose) -> DirectoryFacts | Absent:
    if isinstance(whose.directories, Absent):
        return whose.directories
    return look_place.state(machine, whose.directories.state, whose.account)


def _daemon(answer: Answer, loaded: Config | None) -> DaemonFacts:
    status = answer.status
    if status is None:
        return DaemonFacts(unreachable=answer.unreachable)
    config = status.config
    return DaemonFacts(
        pid=status.pid,
        version=status.version,
        engines=tuple(_troubled(status, loaded)),
        invalid=() if config is None else config.problems,
        needs_restart=() if config is None else config.needs_restart,
        unusable=status.unusable,
    )


def _troubled(status: StatusView, loaded: Config | None) -> Iterator[tuple[str, str, str | None]]:
    """Engines that failed, or whose model is not where it should be."""
    for one in status.engines:
        profile = None if loaded is None else loaded.profiles.get(one.profile)
        accepted = profile is not None and profile.offload == "accept"
        if one.failure is not None:
            what = f"{one.failure.failure}: {one.failure.reason}"
            yield one.profile, what, one.failure.hint
        elif one.state == "ready" and one.residency.state in _MISPLACED and not accepted:
            yield one.profile, f"{one.residency.state}: {one.residency.reason}", None
