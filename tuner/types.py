"""The value types that the tuner takes and returns.

Everything is frozen; unknown is a value of its own (``None`` with a documented
meaning, or ``Unknown(reason)``), never zero.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

__all__ = [
    "Act",
    "Arm",
    "Budget",
    "Decision",
    "Drafter",
    "Evicted",
    "Host",
    "Interval",
    "Observation",
    "Residency",
    "Resident",
    "ShortStep",
    "Spilled",
    "Start",
    "Unknown",
    "depth_order",
    "passes",
]


class Drafter(enum.StrEnum):
    """What proposes tokens."""

    NONE = "none"
    MTP = "mtp"
    MTP_FILE = "mtp-file"
    DRAFT_MODEL = "draft-model"
    EAGLE3 = "eagle3"
    NGRAM = "ngram"
    ADAPTIVE = "adaptive"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Arm:
    """What can be started: a profile with a drafter at a depth.

    Attributes:
        profile: Name of the model profile.
        drafter: What proposes tokens; ``NONE`` exactly at depth 0.
        depth: ``--spec-draft-n-max``; 0 means that the engine is started without
            speculation (passing 0 aborts it: facts/llama_server.md section 9.7).
        p_min: Probability below which a draft is cut short; 0.0 never cuts.
    """

    profile: str
    drafter: Drafter = Drafter.NONE
    depth: int = 0
    p_min: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a depth without a drafter and a drafter without a depth."""
        if self.depth < 0:
            msg = f"depth must be >= 0, got {self.depth}"
            raise ValueError(msg)
        if (self.depth == 0) != (self.drafter is Drafter.NONE):
            msg = f"depth {self.depth} and drafter {self.drafter.value!r} contradict each other"
            raise ValueError(msg)
        if not 0.0 <= self.p_min < 1.0:
            msg = f"p_min must be in [0, 1), got {self.p_min}"
            raise ValueError(msg)

    def __str__(self) -> str:
        """Short name for logs and sentences, e.g. ``tiny-chained@2``."""
        return f"{self.profile}@{self.depth}"


def depth_order(arm: Arm) -> tuple[str, int, str, float]:
    """Sort key for shallow to deep within a profile; the order of ``Arm`` itself is by name."""
    return arm.profile, arm.depth, arm.drafter.value, arm.p_min


@dataclass(frozen=True, slots=True)
class Resident:
    """Every layer is in device memory."""


@dataclass(frozen=True, slots=True)
class Evicted:
    """Layers of the model run on the CPU."""

    layers: int | None
    """How many, or None where the log does not say."""


@dataclass(frozen=True, slots=True)
class Spilled:
    """Device allocations lie in host memory (GTT) although the log says offloaded."""

    spilled_bytes: int | None


@dataclass(frozen=True, slots=True)
class Host:
    """There is no device: everything is in host memory, by design."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The evidence does not decide; passes no gate."""

    reason: str


Residency = Resident | Evicted | Spilled | Host | Unknown


def passes(residency: Residency) -> bool:
    """Whether an arm in this state may be measured and served as intended."""
    return isinstance(residency, Resident | Host)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A credible or confidence interval with its central value.

    Attributes:
        low: Lower bound.
        mid: Central value (mean or median, as the producer says).
        high: Upper bound.
        level: Coverage, e.g. 0.95.
    """

    low: float
    mid: float
    high: float
    level: float = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One repetition of a cell (arm x workload prompt), as measured.

    Attributes:
        arm: What was running.
        workload: Name of the workload ("short", "prose", ...).
        prompt: Index of the prompt within the workload.
        repetition: 0-based repetition of this prompt on this engine start.
        start_id: Engine start that produced it; counters never span two starts.
        fingerprint: Digest of all that a result depends on except the depth.
        tokens: Tokens generated (N, ``predicted_n``).
        decode_s: Seconds of generation (``predicted_ms`` / 1000).
        steps: Verification steps (V, ``num_drafts``); None where not exposed; 0 at depth 0.
        drafted: Drafted tokens (D); None where not exposed.
        accepted: Accepted draft tokens (A); None where not exposed.
        accepted_per_position: n_i, steps in which position i was accepted; None where
            the build lacks the per-position counters.
        offered_per_position: Of the steps that kept all before position i, those whose draft
            had it (``tuner.drafts.traced``); None where the engine traces no steps.
        joules_per_token: All that the card drew while it decoded, per generated token; None
            where that was not measured.
        digest: SHA-256 of the generated text's UTF-8 bytes.
        residency: Verdict on the engine start.
        excluded: Why this repetition must not be used, or None.
    """

    arm: Arm
    workload: str
    prompt: int
    repetition: int
    start_id: str
    fingerprint: str
    tokens: int
    decode_s: float
    steps: int | None
    drafted: int | None
    accepted: int | None
    accepted_per_position: tuple[int, ...] | None
    digest: str
    residency: Residency
    excluded: str | None = None
    offered_per_position: tuple[int, ...] | None = None
    joules_per_token: float | None = None

    @property
    def decode_tps(self) -> float:
        """Tokens per second as the engine computes it: (N - 1) / decode time."""
        return (self.tokens - 1) / self.decode_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortStep:
    """One decode step, timed alone by a reply that ends after it.

    A reply limited to ``rows`` + 2 tokens verifies ``rows`` draft tokens in one step if all
    of them are accepted; so one engine start shows what a verification row costs. The
    engine drafts to its full depth before it cuts, except that 0 rows drafts nothing.

    Attributes:
        arm: What was running; its depth is at least ``rows``.
        start_id: Engine start that produced it.
        fingerprint: Digest of all that a result depends on except the depth.
        rows: Draft tokens verified in the step; 0 is a plain step.
        step_s: Seconds.
        context_tokens: Tokens in the KV cache before the step.
    """

    arm: Arm
    start_id: str
    fingerprint: str
    rows: int
    step_s: float
    context_tokens: int

    def __post_init__(self) -> None:
        """Refuse more rows than the arm drafts and a time that is none."""
        if not 0 <= self.rows <= self.arm.depth:
            msg = f"{self.arm} cannot verify {self.rows} draft tokens in a step"
            raise ValueError(msg)
        if not 0 < self.step_s < math.inf:
            msg = f"a step takes time, got {self.step_s} s"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One engine start, also one that never came to measure anything.

    Attributes:
        arm: What was started.
        start_id: The same id as in the observations of this start.
        residency: Verdict on the start.
        failure: Why the engine did not become ready, or None.
    """

    arm: Arm
    start_id: str
    residency: Residency
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a calibration may spend.

    Attributes:
        max_restarts: Engine starts, the first one included.
        max_cells: Cells (arm x workload prompt), or None for no limit.
        max_seconds: Wall time, or None for no limit.
        max_joules: Energy, or None for no limit; where the energy cannot be read, a
            limit ends the calibration, because it could not be kept.
    """

    max_restarts: int = 6
    max_cells: int | None = None
    max_seconds: float | None = None
    max_joules: float | None = None


class Act(enum.StrEnum):
    """What a decision does."""

    CHOOSE = "choose"
    KEEP = "keep"
    SWITCH = "switch"
    REJECT = "reject"
    MEASURE = "measure"
    ROLL_BACK = "roll_back"
    RELOAD = "reload"
    LOAD = "load"
    UNLOAD = "unload"
    QUARANTINE = "quarantine"
    RELEASE = "release"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An act with its evidence and one sentence of reason.

    Attributes:
        act: What is done.
        subject: Pool or profile that the decision is about.
        arm: The arm chosen, kept, rejected or measured; None where none exists.
        previous: The arm before, or None.
        predicted: Decode tokens per second expected of ``arm``, or None if unmeasured.
        reason: One sentence; the same in the journal, the log, the API and the dashboard.
        evidence: Short statements that the reason rests on, most important first.
    """

    act: Act
    subject: str
    arm: Arm | None
    previous: Arm | None = None
    predicted: Interval | None = None
    reason: str
    evidence: tuple[str, ...] = ()
