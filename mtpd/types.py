"""Value types that sibling packages share: readings, keys, endpoints, verdicts."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from tuner.types import Residency, Unknown, passes

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from mtpd.units import DeviceKey
    from tuner.types import Arm

__all__ = [
    "NOT_OURS",
    "Absent",
    "Command",
    "Confidence",
    "Endpoint",
    "EngineBinary",
    "EngineKey",
    "Evidence",
    "FailureClass",
    "GateResult",
    "HttpEndpoint",
    "LaunchPlan",
    "NotApplicable",
    "OpaqueStart",
    "ProcessMemory",
    "Reading",
    "TcpEndpoint",
    "UnixEndpoint",
    "Value",
    "Verdict",
]

T = TypeVar("T")


class FailureClass(enum.StrEnum):
    """Why an engine is not serving; each class has its own retry rule."""

    CONFIG = "config"
    OOM_VRAM = "oom_vram"
    OOM_HOST = "oom_host"
    CRASH = "crash"
    HANG = "hang"
    GPU_HANG = "gpu_hang"
    GPU_INIT = "gpu_init"
    GPU_FAILED = "gpu_failed"
    DEVICE_LOST = "device_lost"
    VRAM_UNRECOVERED = "vram_unrecovered"
    WEDGED = "wedged"
    STORE = "store"
    KILLED_BY_OPERATOR = "killed_by_operator"


@dataclass(frozen=True, slots=True)
class Value(Generic[T]):
    """A reading that succeeded, and who answered."""

    value: T
    source: str


@dataclass(frozen=True, slots=True)
class Absent:
    """A reading that failed; never to be taken for zero."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """The question does not arise (no GPU); passes gates that Absent does not."""

    reason: str


Reading = Value[T] | Absent | NotApplicable


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """What one process holds of a device.

    Attributes:
        pid: The process.
        name: Its command name, or None where it cannot be read.
        vram_bytes: Device memory; on the host its anonymous and shared resident memory
            (a mapped model file is not counted). ``source`` says who counted: kfd,
            fdinfo, nvml, amdsmi or rss.
        gtt_bytes: Host memory that it has mapped into the device.
        evicted_bytes: Buffers that the kernel moved out of device memory.
        evicted_ms: How long its queues were evicted in all; grows while they are.
    """

    pid: int
    name: str | None
    vram_bytes: Reading[int]
    gtt_bytes: Reading[int] = Absent("this source does not count it")
    evicted_bytes: Reading[int] = Absent("this source does not count it")
    evicted_ms: Reading[int] = Absent("this source does not count it")


@dataclass(frozen=True, slots=True)
class GateResult:
    """Whether a measurement may start, with the sentence that says why.

    Attributes:
        passed: Whether it may.
        reason: One sentence.
        gate: How the card's temperature was judged: absolute (at or below a limit),
            relative (as cool as it gets), timeout (it did not get there) or
            not_applicable. Results of different kinds are not comparable.
        edge_c: Edge temperature when it was decided; None where it is not known.
    """

    passed: bool
    reason: str
    gate: str = "absolute"
    edge_c: float | None = None


@dataclass(frozen=True, slots=True, order=True)
class EngineKey:
    """One place an engine can run: a profile on a device."""

    device: DeviceKey
    profile: str


@dataclass(frozen=True, slots=True)
class UnixEndpoint:
    """An engine that listens on a private unix socket and has a key of its own.

    Its socket's folder is closed to other users; the key is for programs of the same one.
    Without a key it answers whoever reaches the socket.
    """

    path: str
    api_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class TcpEndpoint:
    """An engine that cannot listen on a unix socket: loopback port and per-start key."""

    host: str
    port: int
    api_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """A server that is no engine of ours: its base URL, without a slash at the end."""

    url: str


Endpoint = UnixEndpoint | TcpEndpoint | HttpEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBinary:
    """A llama-server that was found and asked what it can do.

    Attributes:
        argv: How to start it, e.g. ``("/usr/bin/llama-server",)`` or
            ``(sys.executable, "-m", "mtpd.engine.embedded")``.
        kind: "external", "embedded", or "none" where no model needs one.
        flags: Every spelling that its ``--help`` lists, e.g. ``{"--ctx-size", "-c"}``.
        spec_types: Values its ``--help`` lists for ``--spec-type``.
        digest: SHA-256 over the binary and its libraries, or over the wheel's version.
        label: What to call it in a sentence, e.g. "llama-server at /usr/bin/llama-server".
        unix_socket: Whether its ``--host`` takes the path of a unix socket.
        env: Variables that it needs to start at all, beside those of every engine.
    """

    argv: tuple[str, ...]
    kind: str
    flags: frozenset[str]
    spec_types: frozenset[str]
    digest: str
    label: str
    unix_socket: bool = False
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What is handed to the operating system.

    Attributes:
        argv: The flat argument list; option and value follow each other.
        env: The complete environment; nothing is inherited. It holds the engine's key.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class OpaqueStart:
    """What can be expected of a program that is no engine of ours.

    Attributes:
        check: Path that is answered with 200 once it serves; None if it is not asked.
    """

    check: str | None


NOT_OURS = "not an engine of ours: whether it lies in device memory is not applicable"
"""Why nothing is said of the residency of an opaque program, which is served all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """One engine start, decided and validated.

    Attributes:
        key: Device and profile.
        arm: Profile, drafter, depth.
        command: Arguments and environment.
        endpoint: Where it will listen.
        fingerprint: Digest of all that a result depends on except the depth.
        load_stall_s: Seconds without any log line after which a load counts as stuck.
        ready_timeout_s: Seconds after which a load has failed, whatever it prints.
        stop_timeout_s: Seconds between the first request to end and SIGKILL.
        stop_command: What asks it to end in place of SIGTERM; ``${PID}`` is its process.
        opaque: Set where it is no engine of ours.
        purpose: What it answers: text, embedding or rerank.
        accept_offload: Whether the profile accepts an evicted or spilled verdict.
        memory_bytes: Device memory that it needs at most, as predicted; None if unknown.
        settings: All that the configuration says about it but the depth, to tell whether it
            still does.
    """

    key: EngineKey
    arm: Arm
    command: Command
    endpoint: Endpoint
    fingerprint: str
    load_stall_s: float = 120.0
    ready_timeout_s: float = 1800.0
    stop_timeout_s: float = 4.0
    stop_command: Command | None = None
    opaque: OpaqueStart | None = None
    purpose: str = "text"
    accept_offload: bool = False
    memory_bytes: int | None = None
    settings: Hashable = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """One log line (or reading) and what it shows.

    Attributes:
        line: The quoted text.
        says: What it means, in a few words.
    """

    line: str
    says: str


class Confidence(enum.StrEnum):
    """What a verdict rests on."""

    MEASURED = "measured"
    """The log and the memory counters of the card, which agree."""
    REPORTED = "reported"
    """The engine's own words alone."""
    SUSPECTED = "suspected"
    """Signs that have other causes, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A residency with the evidence that decided it.

    Attributes:
        evidence: The quoted lines and readings.
        reason: One sentence.
        confidence: What it rests on.
        contradiction: What speaks against it, one sentence; None where nothing does.
        room_bytes: Device memory that was there for the engine: what was free before it,
            less what other programs took since. None where that was not measured.
        taken_bytes: Memory that the engine was measured to take once it was loaded: of the
            card, or without one its own of the machine's. None where nobody counts it.
    """

    residency: Residency = field(default_factory=lambda: Unknown("no engine was started"))
    evidence: tuple[Evidence, ...] = ()
    reason: str = "no engine was started"
    confidence: Confidence = Confidence.REPORTED
    contradiction: str | None = None
    room_bytes: int | None = None
    taken_bytes: int | None = None

    @property
    def label(self) -> str:
        """One of resident, evicted, spilled, host, unknown."""
        return type(self.residency).__name__.lower()

    @property
    def passes(self) -> bool:
        """Whether the arm may be measured and served as intended."""
        return passes(self.residency)
