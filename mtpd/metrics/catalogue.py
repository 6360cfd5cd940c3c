"""Every metric that the daemon offers: name, type, unit, labels, meaning. Pure.

The one place where a metric is named. What collects them takes names and labels from here,
and docs/metrics.md, the alerts and the dashboard are checked against it. The words of a state
set come from the code that has them. A value that is unknown has no sample, never 0.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, get_args

from mtpd.config.model import TuningMode
from mtpd.gpu.powercap import CapState
from mtpd.supervise.states import Blocked, State
from mtpd.types import FailureClass
from tuner.types import Evicted, Host, Resident, Spilled, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BUCKETS", "GROUPS", "METRICS", "Kind", "Spec", "family_name"]


class Kind(enum.StrEnum):
    """How a metric behaves."""

    COUNTER = "counter"
    """Grows until the daemon ends."""
    GAUGE = "gauge"
    """Goes up and down."""
    HISTOGRAM = "histogram"
    """Counts observations by size."""
    INFO = "info"
    """Always 1; its labels say something."""
    STATES = "state set"
    """1 for the state that holds, the word of its last label; 0 for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """One metric.

    Attributes:
        name: As it is scraped; a histogram without ``_bucket``, ``_sum`` and ``_count``.
        kind: How it behaves.
        unit: Base unit or what is counted; empty for a state and a yes or no.
        says: What it means.
        labels: Names of its labels.
        words: Of a state set: every state.
    """

    name: str
    kind: Kind
    unit: str
    says: str
    labels: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


_ENGINE: Final = ("device", "profile")
_BLOCKED: Final = (FailureClass.VRAM_UNRECOVERED.value, FailureClass.GPU_FAILED.value)
_ENGINE_STATES: Final = tuple(
    sorted({kind.__name__.lower() for kind in get_args(State) if kind is not Blocked} | {*_BLOCKED})
)
_RESIDENCIES: Final = tuple(
    sorted(kind.__name__.lower() for kind in (Resident, Evicted, Spilled, Host, Unknown))
)


def _counter(name: str, unit: str, says: str, *labels: str) -> Spec:
    return Spec(name=f"mtpd_{name}", kind=Kind.COUNTER, unit=unit, says=says, labels=labels)


def _gauge(name: str, unit: str, says: str, *labels: str) -> Spec:
    return Spec(name=f"mtpd_{name}", kind=Kind.GAUGE, unit=unit, says=says, labels=labels)


def _histogram(name: str, says: str, *labels: str) -> Spec:
    return Spec(name=f"mtpd_{name}", kind=Kind.HISTOGRAM, unit="seconds", says=says, labels=labels)


def _info(name: str, says: str, *labels: str) -> Spec:
    return Spec(name=f"mtpd_{name}", kind=Kind.INFO, unit="", says=says, labels=labels)


def _states(name: str, says: str, *labels: str, words: tuple[str, ...]) -> Spec:
    return Spec(
        name=f"mtpd_{name}", kind=Kind.STATES, unit="", says=says, labels=labels, words=words
    )


_DAEMON: Final = (
    _info("build_info", "The daemon and its engine", "version", "engine"),
    _info("hardware_info", "The hardware profile that is declared", "hardware"),
    _states(
        "tuning_mode",
        "How much the daemon does by itself",
        "mode",
        words=tuple(one.value for one in TuningMode),
    ),
    _gauge("database_degraded", "", "Whether what is measured is not kept on the disk now"),
    _gauge("config_invalid", "", "Whether the configuration on the disk has errors"),
    _gauge("models_unusable", "models", "Models whose file cannot be served"),
    _gauge("operation_running", "", "1 for the operation that runs or waits", "kind", "state"),
    _counter(
        "event_readers_dropped_total",
        "readers",
        "Readers of events or log lines that were too slow",
    ),
    _histogram("loop_lag_seconds", "What the daemon's loop wanted to do waited, every 0.25 s"),
)

_REQUESTS: Final = (
    _counter("requests_total", "requests", "Relayed requests that ended", "profile", "outcome"),
    _counter(
        "requests_refused_total", "requests", "Requests that were turned away", "profile", "reason"
    ),
    _counter("http_refusals_total", "requests", "Requests refused at the door", "problem"),
    _histogram("request_duration_seconds", "From a request's arrival to its end", "outcome"),
    _histogram("queue_wait_seconds", "Time in the queue of requests that an engine took"),
    _gauge("requests_waiting", "requests", "Requests that wait for an engine"),
    _gauge("requests_waiting_limit", "requests", "Requests that may wait"),
    _gauge("requests_in_flight", "requests", "Requests that an engine works on"),
    _gauge("requests_quarantined", "requests", "Requests of which engines died, now refused"),
)

_TOKENS: Final = (
    _counter("prompt_tokens_total", "tokens", "Prompt tokens of relayed requests", "profile"),
    _counter(
        "cached_prompt_tokens_total", "tokens", "Those of them taken from the cache", "profile"
    ),
    _counter("generated_tokens_total", "tokens", "Tokens that clients were sent", "profile"),
    _counter(
        "drafted_tokens_total", "tokens", "Draft tokens proposed for relayed requests", "profile"
    ),
    _counter("accepted_tokens_total", "tokens", "Those of them that were accepted", "profile"),
    _counter(
        "timed_tokens_total",
        "tokens",
        "Generated tokens whose time is in mtpd_decode_seconds_total",
        "profile",
    ),
    _counter(
        "decode_seconds_total", "seconds", "Time that engines generated, as they say", "profile"
    ),
    _counter("draft_steps_total", "steps", "Verifications of a draft by an engine", "profile"),
    _counter(
        "position_accepted_tokens_total",
        "tokens",
        "Verifications in which the draft token at a position was accepted; 1 is the first",
        "profile",
        "position",
    ),
)

_ENGINES: Final = (
    _states("engine_state", "State of an engine", *_ENGINE, "state", words=_ENGINE_STATES),
    _states(
        "engine_residency",
        "Where an engine's model lies",
        *_ENGINE,
        "residency",
        words=_RESIDENCIES,
    ),
    _gauge("engine_evicted_layers", "layers", "Layers that did not fit on the device", *_ENGINE),
    _gauge("engine_spilled_bytes", "bytes", "Device memory that lies on the host", *_ENGINE),
    _gauge("engine_draft_depth", "tokens", "Draft depth that it was started with", *_ENGINE),
    _gauge("engine_memory_held_bytes", "bytes", "Memory that an engine holds", *_ENGINE),
    _gauge("engine_memory_predicted_bytes", "bytes", "Memory that was predicted for it", *_ENGINE),
    _gauge(
        "engine_breaker_open",
        "",
        "Whether it is not started again, since too many starts failed",
        *_ENGINE,
    ),
    _counter(
        "engine_starts_total",
        "starts",
        "Engine starts that came to an end: ready or failed",
        "profile",
        "outcome",
    ),
    _histogram("engine_start_duration_seconds", "From an engine's spawn to its being ready"),
    _counter("engine_failures_total", "failures", "Failures of engines", "profile", "failure"),
    _counter(
        "engine_restarts_total",
        "starts",
        "Starts that the supervisor made by itself after a failure",
        "profile",
        "failure",
    ),
    _counter("switches_total", "switches", "Switches to another arm that ended", "outcome"),
    _histogram("switch_duration_seconds", "From the order to switch to the engine being ready"),
)

_TUNING: Final = (
    _counter("decisions_total", "decisions", "Journalled decisions", "act"),
    _counter("measurements_total", "repetitions", "Stored repetitions", "profile", "excluded"),
    _counter(
        "measured_accepted_tokens_total",
        "tokens",
        "Accepted draft tokens of measurements at a position; 1 is the first",
        "profile",
        "position",
    ),
    _gauge("chosen_draft_depth", "tokens", "Depth chosen for a model or pool", "subject"),
    _gauge("choice_measured", "", "Whether measurements chose it", "subject"),
    _gauge("choice_pinned", "", "Whether an operator set it", "subject"),
    _gauge(
        "tuning_stale",
        "",
        "Whether something says that a model's measurements do not hold any more",
        "profile",
    ),
    _states(
        "gate_state",
        "State of a condition of measuring",
        "gate",
        "state",
        words=("passed", "failed", "unknown", "not_applicable"),
    ),
)

_CLASS: Final = ("profile", "class", "depth")
_LIVE: Final = (
    _gauge("live_requests", "requests", "Requests of a class, old ones counting less", *_CLASS),
    _gauge(
        "live_decode_tokens_per_second",
        "tokens per second",
        "Speed of requests that were decoded alone",
        *_CLASS,
    ),
    _gauge(
        "live_acceptance_ratio",
        "ratio",
        "Conditional acceptance of a draft position; 1 is the first",
        *_CLASS,
        "position",
    ),
    _counter(
        "live_excluded_requests_total",
        "requests",
        "Requests that say nothing of the acceptance",
        "profile",
        "reason",
    ),
    _gauge("live_next", "", "1 for what would be done by itself", "profile", "act", "depth"),
)

_GPU: Final = (
    _info("gpu_info", "A device", "device", "vendor", "name", "isa", "driver"),
    _states(
        "gpu_state",
        "How a device answers",
        "device",
        "state",
        words=("unseen", "answering", "silent", "gone", "stale"),
    ),
    _gauge("gpu_vram_total_bytes", "bytes", "Device memory", "device"),
    _gauge("gpu_vram_used_bytes", "bytes", "Device memory in use, of all programs", "device"),
    _gauge("gpu_vram_budget_bytes", "bytes", "Device memory that engines may take", "device"),
    _gauge("gpu_gtt_total_bytes", "bytes", "Host memory that the device may map", "device"),
    _gauge("gpu_gtt_used_bytes", "bytes", "Host memory that the device has mapped", "device"),
    _gauge("gpu_temperature_celsius", "celsius", "Temperature", "device", "sensor"),
    _gauge("gpu_power_watts", "watts", "Power that the board draws", "device"),
    _gauge("gpu_idle_power_watts", "watts", "Power while it computes nothing", "device"),
    _gauge("gpu_power_cap_watts", "watts", "Power limit in force", "device"),
    _gauge("gpu_power_cap_declared_watts", "watts", "Power limit that is declared", "device"),
    _states(
        "gpu_power_cap_state",
        "How far the declared power limit is kept",
        "device",
        "state",
        words=tuple(one.value for one in CapState),
    ),
    _counter(
        "gpu_energy_joules_total", "joules", "Energy that the board drew while watched", "device"
    ),
    _gauge("gpu_busy_ratio", "ratio", "Share of the time that the device computes", "device"),
    _gauge("gpu_memory_busy_ratio", "ratio", "Share of the time its memory is used", "device"),
    _gauge("gpu_clock_hertz", "hertz", "Clock", "device", "domain"),
    _gauge("gpu_throttled", "", "Whether a reason of throttling holds", "device", "reason"),
    _counter(
        "gpu_ecc_uncorrectable_errors_total",
        "errors",
        "Memory errors that could not be corrected, since the driver was loaded",
        "device",
    ),
    _gauge("host_memory_available_bytes", "bytes", "Memory the host gives without swapping"),
    _gauge("host_memory_budget_bytes", "bytes", "Memory of the host that engines may take"),
    _counter("host_oom_kills_total", "processes", "Processes that were killed for memory"),
    _counter(
        "host_package_energy_joules_total", "joules", "Energy of the processor, never a card's"
    ),
)

_PROCESS: Final = (
    _counter("process_cpu_seconds_total", "seconds", "Total user and system CPU time spent"),
    _gauge("process_virtual_memory_bytes", "bytes", "Virtual memory size"),
    _gauge("process_resident_memory_bytes", "bytes", "Resident memory size"),
    _gauge("process_start_time_seconds", "seconds", "Start of the daemon since the Unix epoch"),
    _gauge("process_open_fds", "descriptors", "Open file descriptors"),
    _gauge("process_max_fds", "descriptors", "File descriptors that may be open"),
)
"""Of prometheus_client's own collector, which names them itself."""

GROUPS: Final[Mapping[str, tuple[Spec, ...]]] = MappingProxyType(
    {
        "The daemon": _DAEMON,
        "Requests": _REQUESTS,
        "Tokens and drafts": _TOKENS,
        "Engines": _ENGINES,
        "Tuning": _TUNING,
        "Live traffic": _LIVE,
        "Devices and the machine": _GPU,
        "The process": _PROCESS,
    }
)
"""What belongs together, in the order of docs/metrics.md."""

METRICS: Final[Mapping[str, Spec]] = MappingProxyType(
    {one.name: one for group in GROUPS.values() for one in group}
)
"""Every metric by its name."""

_LONG_S: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300)
BUCKETS: Final[Mapping[str, tuple[float, ...]]] = MappingProxyType(
    {
        "mtpd_loop_lag_seconds": (0.001, 0.002, 0.005, 0.01, 0.02, *_LONG_S[:6], 10),
        "mtpd_request_duration_seconds": (*_LONG_S, 600),
        "mtpd_queue_wait_seconds": (0.001, 0.01, *_LONG_S),
        "mtpd_switch_duration_seconds": _LONG_S,
        "mtpd_engine_start_duration_seconds": (*_LONG_S, 600, 1800),
    }
)
"""Upper bounds of each histogram, seconds."""


def family_name(spec: Spec) -> str:
    """The name without the suffix that the client library adds itself."""
    suffix = {Kind.COUNTER: "_total", Kind.INFO: "_info"}.get(spec.kind, "")
    return spec.name.removesuffix(suffix)
