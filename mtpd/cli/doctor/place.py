"""Findings about the machine: ports, sockets, disk, model files, memory, tokens, clock. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mtpd.cli.doctor.finding import ERROR, WARNING, Check, Found, Seen, edit, quoted
from mtpd.cli.doctor.rights import ENTER, READ, WRITE, barred, may
from mtpd.compat import hub
from mtpd.report.text import size
from mtpd.types import Absent, Value
from mtpd.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.cli.doctor.facts import DirectoryFacts, Facts, ModelFile, SocketFacts

__all__ = ["DESCRIPTORS", "DISK", "LISTEN", "MEMORY", "MODELS", "SOCKET", "SYSTEM", "TOKENS"]

SOCKET_PATH_BYTES: Final = 107
"""``sun_path`` of unix(7) holds 108 bytes with the zero that ends it."""
LITTLE_BYTES: Final = 64 * MIB
"""Below it the database may fail at any moment."""
LOW_BYTES: Final = 1024 * MIB
"""Below it logs and a long measurement may fill the disk."""
FIRST_YEAR: Final = 2025
"""mtpd did not exist before it."""
FILES: Final = 65536
"""What the shipped unit sets."""

_NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "fuse.sshfs", "afs"}
)
_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_NOT_LOOKED: Final = Seen("not looked at: the configuration is refused", "unknown")
_TOKENS_ELSEWHERE: Final = Seen(
    "not looked at: the state directory is not known, or another user's", "unknown"
)


def _listen(facts: Facts) -> Iterator[Found]:
    sockets = facts.sockets
    if sockets is None or sockets.taken_by is None or facts.daemon.unreachable is not None:
        return  # a daemon that does not answer is told, and may be who listens
    by = sockets.taken_by
    who = (by.name or "a program of another user") + (f" (pid {by.pid})" if by.pid else "")
    port = sockets.listen.rpartition(":")[2]
    says = f"{who} listens on {sockets.listen} already: mtpd cannot serve clients there"
    look = f"sudo ss -ltnp 'sport = :{port}'"
    yield Found(ERROR, says, f"{look}    # end it, or choose another [server] listen")


def _see_listen(facts: Facts) -> Seen:
    sockets = facts.sockets
    if sockets is None:
        return _NOT_LOOKED
    if facts.daemon.pid is not None:
        return Seen(f"{sockets.listen} is the daemon")
    if facts.daemon.unreachable is not None:
        return Seen("not looked at: a daemon is there, and does not answer", "unknown")
    free = "any free port" if sockets.listen.endswith(":0") else "free"
    return Seen(f"{sockets.listen} is {free}")


def _socket(facts: Facts) -> Iterator[Found]:
    sockets = facts.sockets
    if sockets is None or sockets.control is None:
        return
    length = len(sockets.control.encode("utf-8", "surrogateescape"))
    if length > SOCKET_PATH_BYTES:
        says = (
            f"the control socket's path has {length} bytes, and the kernel takes at most"
            f" {SOCKET_PATH_BYTES}: the daemon does not start ({sockets.control})"
        )
        then = 'control_socket = "/run/mtpd-control.sock" under [server]'
        yield Found(ERROR, says, edit("", facts.config.path, then=then))


def _see_socket(facts: Facts) -> Seen:
    if facts.sockets is None:
        return _NOT_LOOKED
    if facts.sockets.control is None:
        return Seen("not looked at: it is another user's", "unknown")
    return Seen(facts.sockets.control)


def _disk(facts: Facts) -> Iterator[Found]:
    state = facts.state
    if isinstance(state, Absent):
        return
    yield from _writable(facts, state)
    if state.mount is not None and state.mount.read_only:
        says = (
            f"{state.path} lies on a file system that takes no writes ({state.mount.point}):"
            " nothing that the daemon learns outlives it"
        )
        yield Found(ERROR, says, f"sudo mount -o remount,rw {quoted(state.mount.point)}")
    if state.mount is not None and state.mount.kind in _NETWORK:
        says = (
            f"{state.path} lies on a network file system ({state.mount.kind} at"
            f" {state.mount.point}), where SQLite's write-ahead log loses or damages data"
        )
        yield Found(ERROR, says, "mtpd serve --state-dir /var/lib/mtpd    # a local disk")
    if state.mount is not None and state.mount.kind in _MEMORY:
        says = (
            f"{state.path} lies in memory ({state.mount.kind} at {state.mount.point}): every"
            " measurement and decision is lost with the next boot"
        )
        yield Found(WARNING, says, "mtpd serve --state-dir /var/lib/mtpd    # a disk")
    if isinstance(state.free_bytes, Value):
        yield from _space(state, state.free_bytes.value)


def _writable(facts: Facts, state: DirectoryFacts) -> Iterator[Found]:
    name = facts.account.name
    if state.problem is not None:
        says, hint = state.problem
        yield Found(ERROR, f"the daemon does not start: {says}", _command(hint, state.path))
    elif not may(facts.account, state.nearest, WRITE | ENTER) or barred(facts.account, state.above):
        says = f"{name} may not write to {state.nearest.path}: the daemon does not start"
        yield Found(ERROR, says, f"sudo install -d -m 700 -o {quoted(name)} {quoted(state.path)}")


def _command(hint: str, path: str) -> str:
    """The hint of a refused folder where it is a command, else a look at the folder."""
    return hint if hint.startswith("chmod ") else f"ls -ld {quoted(path)}    # {hint}"


def _space(state: DirectoryFacts, free_bytes: int) -> Iterator[Found]:
    if free_bytes >= LOW_BYTES:
        return
    little = free_bytes < LITTLE_BYTES
    why = "no decision can be journalled" if little else "logs and measurements may fill it"
    says = f"{size(free_bytes)} are free where {state.path} lies: {why}"
    fix = f"du -xh --max-depth=2 {quoted(state.path)} | sort -h | tail"
    yield Found(ERROR if little else WARNING, says, fix)


def _see_disk(facts: Facts) -> Seen:
    state = facts.state
    if isinstance(state, Absent):
        return Seen(state.reason, "unknown")
    free = state.free_bytes
    left = f"{size(free.value)} free" if isinstance(free, Value) else free.reason
    kind = "unknown file system" if state.mount is None else state.mount.kind
    return Seen(f"{state.path}: {left}, {kind}")


def _models(facts: Facts) -> Iterator[Found]:
    for file in facts.models:
        found = _model(facts, file)
        if found is not None:
            yield found
        elif file.mount is not None and file.mount.kind in _NETWORK:
            says = (
                f"{file.path} lies on a network file system ({file.mount.kind} at"
                f" {file.mount.point}): each load waits for it, and the engine dies when it is gone"
            )
            folder = "/srv/models/"
            yield Found(WARNING, says, f"sudo cp {quoted(file.path)} {folder}")


def _model(facts: Facts, file: ModelFile) -> Found | None:
    """The first reason why a model file cannot be served."""
    name, place = facts.account.name, f"{file.origin}: {file.key}"
    if file.problem is not None:
        says = f"{file.key}: {file.path} {file.problem}: this model cannot be served"
        missing = hub.parse(file.path)
        then = "or fetch the file again"
        fix = edit(place, facts.config.path, then=then) if missing is None else missing.download
        return Found(ERROR, says, fix)
    closed = barred(facts.account, file.above)
    if closed is not None:
        says = f"{name} may not enter {closed.path}, below which the file of {file.key} lies"
        return Found(ERROR, says, f"sudo chmod o+x {quoted(closed.path)}")
    if file.inode is not None and not may(facts.account, file.inode, READ):
        says = f"{name} may not read {file.path} ({file.key}): this model cannot be served"
        return Found(ERROR, says, f"sudo chmod o+r {quoted(file.path)}")
    if file.hidden:
        says = (
            f"{file.path} ({file.key}) is hidden from the service, as all homes are"
            " (ProtectHome): this model cannot be served"
        )
        to = f"/srv/models/{file.path.rpartition('/')[2]}"
        return Found(ERROR, says, f"sudo install -D -m 644 {quoted(file.path, to)}")
    return None


def _see_models(facts: Facts) -> Seen:
    if facts.config.problems:
        return _NOT_LOOKED
    count = len(facts.models)
    return Seen(f"{count} file{'' if count == 1 else 's'}, whole and open to {facts.account.name}")


def _memory(facts: Facts) -> Iterator[Found]:
    host = facts.host
    sizes = (one.size_bytes for one in facts.models)
    largest = max((size for size in sizes if size is not None), default=0)
    limit = host.cgroup_bytes
    if isinstance(limit, Absent):
        says = f"what the control groups allow is not known ({limit.reason})"
        yield Found(WARNING, says, "systemctl show mtpd -p MemoryMax -p MemoryHigh")
    elif isinstance(limit, Value) and limit.value < largest + LOW_BYTES:
        says = (
            f"the control groups allow {size(limit.value)} more, and the largest model has"
            f" {size(largest)}: a load is slowed, or the kernel ends the engine"
        )
        yield Found(ERROR, says, "sudo systemctl set-property mtpd.service MemoryMax=infinity")
    if not facts.device.cards and host.available_bytes < largest:
        says = (
            f"{size(host.available_bytes)} of memory are available and the largest model has"
            f" {size(largest)}: without a card it runs from the disk"
        )
        yield Found(WARNING, says, "ps -eo pid,rss,comm --sort=-rss | head")
    if isinstance(host.oom_kills, Value) and host.oom_kills.value and facts.daemon.pid is not None:
        says = (
            f"the kernel ended {host.oom_kills.value} processes of these control groups for memory"
        )
        yield Found(WARNING, says, "sudo journalctl -k -g 'oom-kill|Killed process'")


def _see_memory(facts: Facts) -> Seen:
    host = facts.host
    limit = host.cgroup_bytes
    allowed = f", {size(limit.value)} allowed" if isinstance(limit, Value) else ", no limit"
    return Seen(f"{size(host.available_bytes)} available{allowed}")


def _descriptors(facts: Facts) -> Iterator[Found]:
    soft, hard = facts.host.files
    needed = facts.host.files_needed
    if soft >= needed:
        return
    says = (
        f"{soft} files may be open at once and {needed} are needed for as many clients as the"
        " configuration lets wait: connections are refused under load"
    )
    if facts.service:
        fix = f"printf '[Service]\\nLimitNOFILE={FILES}\\n' | sudo systemctl edit --stdin mtpd"
    else:
        fix = f"ulimit -n {min(hard, FILES) if hard >= needed else needed}"
    yield Found(WARNING, says, fix)


def _see_descriptors(facts: Facts) -> Seen:
    return Seen(f"{facts.host.files[0]} may be open, {facts.host.files_needed} are needed")


def _tokens(facts: Facts) -> Iterator[Found]:
    tokens = facts.tokens
    if tokens is None:
        return
    if tokens.problem is not None:
        says, hint = tokens.problem
        yield Found(ERROR, f"{says}: the daemon does not start", _command(hint, tokens.path))
    elif _is_remote(facts.sockets) and not tokens.count:
        says = (
            "other machines reach the daemon, and there is no access token: mtpd serve does not"
            " start without one"
        )
        yield Found(ERROR, says, "mtpd token add NAME")


def _is_remote(sockets: SocketFacts | None) -> bool:
    return sockets is not None and sockets.remote


def _see_tokens(facts: Facts) -> Seen:
    if facts.tokens is None:
        return _NOT_LOOKED if facts.config.problems else _TOKENS_ELSEWHERE
    where = "open to other machines" if _is_remote(facts.sockets) else "loopback only"
    return Seen(f"{facts.tokens.count or 'none'}, {where}")


def _system(facts: Facts) -> Iterator[Found]:
    system = facts.system
    if system.year < FIRST_YEAR:
        says = f"the clock says {system.year}: tokens, journal and measurements go by it"
        yield Found(ERROR, says, "sudo timedatectl set-ntp true")
    if not system.boot_id:
        says = "/proc does not say which boot this is: leftovers of a dead daemon cannot be ended"
        yield Found(ERROR, says, "sudo mount -t proc proc /proc")
    if system.hides_processes and facts.account.uid:
        says = (
            "/proc hides the processes of other users (hidepid): who holds memory of the card is"
            " not seen"
        )
        yield Found(WARNING, says, "sudo mount -o remount,hidepid=0 /proc")


LISTEN: Final = Check(name="port", find=_listen, see=_see_listen)
SOCKET: Final = Check(name="control socket", find=_socket, see=_see_socket)
DISK: Final = Check(name="state", find=_disk, see=_see_disk)
MODELS: Final = Check(name="model files", find=_models, see=_see_models)
MEMORY: Final = Check(name="memory", find=_memory, see=_see_memory)
DESCRIPTORS: Final = Check(name="open files", find=_descriptors, see=_see_descriptors)
TOKENS: Final = Check(name="tokens", find=_tokens, see=_see_tokens)
SYSTEM: Final = Check(name="clock", find=_system, see=lambda _: Seen("clock and /proc are right"))
