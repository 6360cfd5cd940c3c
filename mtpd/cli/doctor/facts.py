"""What ``mtpctl doctor`` looked at: plain values, before anything is made of them. Pure.

A fact that could not be had is ``Absent`` with the reason, never a value that looks fine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mtpd.cli.doctor.rights import Account, Inode
    from mtpd.types import Absent, Reading

__all__ = [
    "CardFacts",
    "ConfigFacts",
    "DaemonFacts",
    "DeviceFacts",
    "DirectoryFacts",
    "EngineFacts",
    "Facts",
    "HiddenFacts",
    "Holder",
    "HostFacts",
    "Lack",
    "Listener",
    "ModelFile",
    "MountFacts",
    "SocketFacts",
    "SystemFacts",
    "TokenFacts",
    "UnitFacts",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFacts:
    """The configuration.

    Attributes:
        path: The file, or None for the defaults.
        problems: Why it is refused, each as ``FILE:LINE: KEY: what is wrong``.
        ignored: What of a foreign file has no effect, likewise.
        unread: Files that one might take for it.
        models: How many models it has.
    """

    path: str | None
    problems: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    models: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """An arm that this engine cannot start: which, why, and what to do."""

    arm: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """The engine that the configuration asks for.

    Attributes:
        spec: As configured: auto, embedded, a name or a path.
        origin: Where that stands.
        label: What was found, or None.
        path: The file that was found or named, or None.
        mode: Permission bits of ``path``, or None where there is no such file.
        error: Why it cannot be used, one sentence, or None.
        lacks: Arms of the configuration that it cannot start.
        embedded: Whether it is the embedded engine.
        odd: What is odd about it for this configuration.
    """

    spec: str
    origin: str
    label: str | None = None
    path: str | None = None
    mode: int | None = None
    error: str | None = None
    lacks: tuple[Lack, ...] = ()
    embedded: bool = False
    odd: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenFacts:
    """What adds options to a llama-server behind everybody's back.

    Attributes:
        system: The file that every llama-server of this machine reads, if there is one.
        own: The file that those of this user read that mtpd does not start, likewise.
        variables: Names of ``LLAMA_ARG_*`` in this environment.
    """

    system: str | None = None
    own: str | None = None
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds memory of a card and is no engine of the daemon.

    Attributes:
        bytes_: Device memory.
    """

    pid: int
    name: str | None
    bytes_: Reading[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """One card.

    Attributes:
        cap_state: As ``mtpd.gpu.powercap.CapState``.
        cap_says: Its sentence.
        cap_wanted: Whether a hardware profile declares a cap.
        edge_c: Edge temperature.
        holders: Who holds its memory beside the daemon's engines.
    """

    key: str
    name: str | None
    vendor: str
    cap_state: str
    cap_says: str
    cap_wanted: bool
    edge_c: Reading[float]
    holders: tuple[Holder, ...] | Absent


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """Cards, and the device files that a program needs for them.

    Attributes:
        amd: PCI addresses of AMD's display controllers.
        nvidia: Likewise of NVIDIA's.
        cards: What the drivers show.
        nodes: Device files that are there.
        missing: Device files that are needed for the cards and not there.
        refused: Why a source is not asked, by source.
        silent: Why nothing could be asked at all, or None.
    """

    amd: tuple[str, ...] = ()
    nvidia: tuple[str, ...] = ()
    cards: tuple[CardFacts, ...] = ()
    nodes: tuple[Inode, ...] = ()
    missing: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    silent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Who listens on the data port; pid and name are None where they cannot be seen."""

    pid: int | None
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketFacts:
    """Where clients and operators are answered.

    Attributes:
        listen: Of the data plane.
        taken_by: Who listens there already; None where nobody does.
        control: Path of the control socket; None where another user's daemon has it.
        remote: Whether other machines reach the data plane.
    """

    listen: str
    taken_by: Listener | None
    control: str | None
    remote: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MountFacts:
    """Where a path lies; None in place of it where that is not known.

    Attributes:
        point: The mount point.
        kind: Of file system.
        read_only: Whether nobody may write there.
    """

    point: str
    kind: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFacts:
    """The state directory.

    Attributes:
        nearest: It, or the nearest folder above it that is there.
        problem: Why it is refused where it exists: sentence and what to do, or None.
        free_bytes: For those who are not root.
        above: The folders that lead there.
    """

    path: str
    nearest: Inode
    problem: tuple[str, str] | None
    free_bytes: Reading[int]
    mount: MountFacts | None
    above: tuple[Inode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """A file that a model names.

    Attributes:
        key: The key that names it, e.g. ``models.m.model``.
        origin: Where that stands, ``FILE:LINE``.
        problem: Why it cannot be served: sentence, or None.
        inode: Its rights, or None where it is not there.
        above: The folders that lead to it.
        hidden: Whether the sandbox of the service hides it.
    """

    key: str
    origin: str
    path: str
    problem: str | None
    inode: Inode | None
    above: tuple[Inode, ...]
    size_bytes: int | None
    mount: MountFacts | None
    hidden: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Memory and descriptors of the machine.

    Attributes:
        available_bytes: What the kernel could give without swapping.
        cgroup_bytes: What the control groups still allow.
        oom_kills: Processes of the control group that were killed for memory.
        files: Soft and hard limit of open descriptors, of the daemon where it runs.
        files_needed: For as many clients as the configuration lets wait.
    """

    available_bytes: int
    cgroup_bytes: Reading[int]
    oom_kills: Reading[int]
    files: tuple[int, int]
    files_needed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFacts:
    """An installed unit of systemd.

    Attributes:
        path: The unit.
        user: Whether it is of the user's own manager.
        program: What it starts.
        program_there: Whether that exists and can be executed.
        differs: Whether this version of mtpd would write another one; None where it cannot
            be said.
        account: The user that it names; None for the user's own manager, and where there is
            no such user.
        names_user: The name, or None.
    """

    path: str
    user: bool
    program: str
    program_there: bool
    differs: bool | None
    names_user: str | None = None
    account: Account | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFacts:
    """The access tokens.

    Attributes:
        problem: Why the file cannot be used: sentence and what to do, or None.
        count: Tokens in it and in the configuration.
    """

    path: str
    problem: tuple[str, str] | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemFacts:
    """Clock and ``/proc``.

    Attributes:
        year: By the wall clock.
        boot_id: Whether the kernel says which boot this is, as the ledger needs it.
        hides_processes: Whether ``/proc`` shows only processes of the same user.
    """

    year: int
    boot_id: bool
    hides_processes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonFacts:
    """What a running daemon says of itself.

    Attributes:
        unreachable: Why a daemon that is there does not answer: sentence and what to do.
        engines: Engines that do not serve as they should: model, what is wrong, and the hint.
        invalid: What is wrong with the configuration on the disk.
        needs_restart: Keys that wait for a restart of the daemon.
        unusable: Models whose file it cannot serve.
    """

    pid: int | None = None
    version: str | None = None
    unreachable: tuple[str, str] | None = None
    engines: tuple[tuple[str, str, str | None], ...] = ()
    invalid: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    unusable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that was looked at.

    Attributes:
        version: Of mtpctl.
        account: Whom the daemon runs as, or would.
        service: Whether that is the system's service.
        visitor: Who asks, where that is another user and not root.
    """

    version: str
    account: Account
    service: bool
    config: ConfigFacts
    hidden: HiddenFacts
    device: DeviceFacts
    host: HostFacts
    system: SystemFacts
    daemon: DaemonFacts
    units: tuple[UnitFacts, ...]
    engine: EngineFacts | None = None
    sockets: SocketFacts | None = None
    state: DirectoryFacts | Absent
    models: tuple[ModelFile, ...] = ()
    tokens: TokenFacts | None = None
    visitor: Account | None = None
