"""One verdict on where a model lies, over all that bears witness to it.

The log says what the engine asked for, the counters of the card say what it got. Covers
weighing them after a load (``conclude``) and while the engine serves (``rejudge``). What
the log alone says is decided in ``mtpd.engine.evidence``; reading the counters, and what
to do about a verdict, are the supervisor's business.

Rules, each from facts/gpu.md section 5.3 or facts/real_gpu_27b.md:

- Measured device memory is the printed sum plus a constant of some 54 MiB. More than
  256 MiB less than the printed sum: that much was spilled, whatever the log says.
- Host memory that the card has mapped grows by the pinned buffers that the log lists. More
  than 256 MiB beyond them, or buffers that the kernel moved out: spilled.
- A fused kernel that is off, memory below the sum, a decode rate below 0.6 of the arm's own
  record: each by itself has other causes, two together are an eviction that the log hides
  (study 002: "fused Gated-DeltaNet disabled, VRAM down, decode halved").
- Witnesses that contradict each other: the worse one counts, and the contradiction is said.
- What cannot be read bears no witness. It never counts as zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from mtpd.engine.memory_look import MemoryLook, fell, grown, moved_out, pinned_now, room, taken
from mtpd.types import NOT_OURS, Confidence, Evidence, Verdict
from mtpd.units import MIB
from tuner.types import Evicted, Host, Resident, Spilled, Unknown

if TYPE_CHECKING:
    from mtpd.engine.evidence_load import BufferSums
    from tuner.types import Residency

__all__ = ["Rate", "Witnesses", "conclude", "not_ours", "out_of_memory", "rejudge"]

TOLERANCE_BYTES = 256 * MIB
"""Less than this between the printed sum and the measured memory is rounding, an overhead
of the driver, or somebody else's window."""

SIGN_BYTES = 64 * MIB
"""Memory below the printed sum by this much is a sign, not a proof: the driver's overhead
alone puts it above the sum."""

SLOW = 0.6
"""Share of an arm's own decode rate below which it is suspected. One evicted layer of 66
cost 30 %, four cost 63 %; a hot card and a long context cost some, too."""

_MAX_EVIDENCE = 8


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast an arm decodes, against how fast it did.

    Attributes:
        tps: Tokens per second, now.
        record_tps: The same arm's own median under the same fingerprint.
    """

    tps: float
    record_tps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnesses:
    """All that bears witness to one engine start.

    Attributes:
        log: What its log alone says.
        printed: Sum of the buffers that the log lists; None where it lists none.
        fused_off: The line of a fused kernel that was switched off, or None.
        before: The card before the start; None where there is no card to read.
        now: The card with the model loaded, likewise.
        depth: Draft depth that was asked for.
        speculates: Whether its slots say that they draft; None where they do not say.
        rate: Its decode rate against its record, or None while one of both is missing.
    """

    log: Verdict
    printed: BufferSums | None = None
    fused_off: Evidence | None = None
    before: MemoryLook | None = None
    now: MemoryLook | None = None
    depth: int = 0
    speculates: bool | None = None
    rate: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """What one witness says: a residency, or None for "as the log says"."""

    residency: Residency | None
    reason: str
    evidence: tuple[Evidence, ...]
    confidence: Confidence


def conclude(w: Witnesses) -> Verdict:
    """Weigh the witnesses of a load; total over any combination of them."""
    if isinstance(w.log.residency, Host):
        return w.log
    said = w.log
    for witness in (_measured, _hidden, _other_arm):
        degraded = isinstance(said.residency, Evicted | Spilled)
        # What is known to be degraded explains its signs; they contradict nothing.
        if not (degraded and witness is _hidden) and (found := witness(w)) is not None:
            said = _weigh(said, found)
    return said


def not_ours(before: MemoryLook | None, now: MemoryLook | None) -> Verdict:
    """The verdict on a program of which nothing is known but what it holds of the card."""
    memory = "nobody counts it" if before is None or now is None else taken(before, now)
    shown = () if isinstance(memory, str) else (Evidence(memory.line, "what it holds"),)
    return Verdict(
        residency=Unknown(NOT_OURS),
        evidence=shown,
        reason=NOT_OURS,
        room_bytes=room(before, now),
    )


def out_of_memory(reason: str, *, room_bytes: int | None = None) -> Verdict:
    """The verdict on an arm whose engine ended because device memory ran out.

    Where its layers would have had to go is not known, so no number of them is named.

    Args:
        reason: Why it ended, one sentence.
        room_bytes: Device memory that was there for it, or None.
    """
    return Verdict(residency=Evicted(None), reason=reason, room_bytes=room_bytes)


def _weigh(log: Verdict, found: _Finding) -> Verdict:
    """What was found so far against one more witness: the worse one counts."""
    if found.residency is None or _severity(found.residency) <= _severity(log.residency):
        return _beside(log, found)
    agree = isinstance(log.residency, Unknown)
    return Verdict(
        residency=found.residency,
        evidence=(*found.evidence, *log.evidence)[:_MAX_EVIDENCE],
        reason=found.reason,
        confidence=found.confidence,
        contradiction=None if agree else f"other witnesses say {log.label}: {log.reason}",
    )


def _beside(log: Verdict, found: _Finding) -> Verdict:
    """The log's verdict, with what another witness adds to it."""
    agrees = found.residency is None or type(found.residency) is type(log.residency)
    evidence = (*log.evidence[: _MAX_EVIDENCE - len(found.evidence)], *found.evidence)
    if found.confidence is Confidence.SUSPECTED or not agrees:
        return replace(log, evidence=evidence, contradiction=found.reason)
    if isinstance(log.residency, Unknown):
        return replace(log, evidence=evidence)
    return replace(log, evidence=evidence, confidence=found.confidence)


def _severity(residency: Residency) -> int:
    match residency:
        case Resident() | Host():
            return 0
        case Unknown():
            return 1
        case Spilled():
            return 2
        case Evicted():
            return 3
        case _:
            assert_never(residency)


# What the counters of the card say ----------------------------------------------------


def _measured(w: Witnesses) -> _Finding | None:
    """Measured memory against the printed sum; None where it adds nothing."""
    if w.before is None or w.now is None:
        return None
    moved = moved_out(w.now)
    memory = taken(w.before, w.now)
    if w.printed is None or not w.printed.device_bytes or isinstance(memory, str):
        return _moved(moved) or _unmeasured(memory)
    short = w.printed.device_bytes - memory.count
    excess = _excess(w, w.before, w.now)
    spilled = max(short if short > TOLERANCE_BYTES else 0, moved or 0, excess or 0)
    said = [Evidence(memory.line, f"the log lists {_mib(w.printed.device_bytes)}")]
    if (mapped := pinned_now(w.before, w.now)) is not None:
        said.append(Evidence(mapped.line, f"the log lists {_mib(w.printed.pinned_bytes)}"))
    if not spilled:
        if short > SIGN_BYTES:
            return None  # a sign, for _hidden
        return _Finding(
            residency=None,
            reason="measured and printed memory agree",
            evidence=tuple(said),
            confidence=Confidence.MEASURED,
        )
    if moved:
        said.insert(0, _moved_line(moved))
    witnesses = sum((short > TOLERANCE_BYTES, bool(moved), bool(excess)))
    return _Finding(
        residency=Spilled(spilled),
        reason=f"{_mib(spilled)} that the log lists as device memory are in host memory",
        evidence=tuple(said),
        confidence=Confidence.MEASURED if moved or witnesses > 1 else Confidence.SUSPECTED,
    )


def _excess(w: Witnesses, before: MemoryLook, now: MemoryLook) -> int | None:
    """Mapped host memory beyond the pinned buffers; None where it is as it should be."""
    mapped = pinned_now(before, now)
    if mapped is None or w.printed is None:
        return None
    excess = mapped.count - w.printed.pinned_bytes
    return excess if excess > TOLERANCE_BYTES else None


def _moved(moved: int | None) -> _Finding | None:
    if not moved:
        return None
    return _Finding(
        residency=Spilled(moved),
        reason=f"the kernel moved {_mib(moved)} of its buffers to host memory",
        evidence=(_moved_line(moved),),
        confidence=Confidence.MEASURED,
    )


def _moved_line(moved: int) -> Evidence:
    return Evidence(f"{_mib(moved)} moved out by the kernel", "not in device memory")


def _unmeasured(memory: object) -> _Finding | None:
    if not isinstance(memory, str):
        return None
    return _Finding(
        residency=None,
        reason="nothing was measured",
        evidence=(Evidence(f"device memory: {memory}", "not measured"),),
        confidence=Confidence.REPORTED,
    )


# Signs of an eviction that the log hides ----------------------------------------------


def _hidden(w: Witnesses) -> _Finding | None:
    """Two signs together are an eviction, one alone is said and changes nothing."""
    signs = [] if w.fused_off is None else [w.fused_off]
    if (low := _below_the_sum(w)) is not None:
        signs.append(low)
    if w.rate is not None and w.rate.tps < SLOW * w.rate.record_tps:
        line = f"{w.rate.tps:.1f} tok/s, its own record is {w.rate.record_tps:.1f} tok/s"
        signs.append(Evidence(line, "slower than the same arm was"))
    if not signs:
        return None
    told = "; ".join(sign.says for sign in signs)
    if len(signs) == 1:
        return _Finding(
            residency=None,
            reason=f"{told}: by itself no proof of an eviction",
            evidence=tuple(signs),
            confidence=Confidence.SUSPECTED,
        )
    return _Finding(
        residency=Evicted(None),
        reason=f"layers run on the CPU, by their signs: {told}",
        evidence=tuple(signs),
        confidence=Confidence.SUSPECTED,
    )


def _below_the_sum(w: Witnesses) -> Evidence | None:
    if w.before is None or w.now is None or w.printed is None:
        return None
    memory = taken(w.before, w.now)
    if isinstance(memory, str) or w.printed.device_bytes - memory.count <= SIGN_BYTES:
        return None
    return Evidence(memory.line, f"less than the {_mib(w.printed.device_bytes)} of the log")


def _other_arm(w: Witnesses) -> _Finding | None:
    """Slots that do not draft: what runs is not the arm, and its memory says nothing of it."""
    if not w.depth or w.speculates is not False:
        return None
    reason = f"depth {w.depth} was asked for, and its slots do not draft"
    return _Finding(
        residency=Unknown(reason),
        reason=reason,
        evidence=(Evidence('/slots: "speculative": false', "it does not draft"),),
        confidence=Confidence.REPORTED,
    )


# While it serves ------------------------------------------------------------------------


def rejudge(verdict: Verdict, *, ready: MemoryLook, now: MemoryLook) -> Verdict:
    """The verdict on a serving engine; the same one unless something has become worse.

    Memory of the whole card falls and grows with other programs, so alone it proves
    nothing here: it must fall and mapped host memory grow by half of that.

    Args:
        verdict: So far.
        ready: The card when the engine became ready.
        now: The card now.
    """
    if _severity(verdict.residency) >= _severity(Spilled(None)):
        return verdict
    if isinstance(verdict.residency, Host):
        return verdict
    moved = (moved_out(now) or 0) - (moved_out(ready) or 0)
    gone = fell(ready, now)
    grew = grown(ready, now)
    lost = 0
    if gone is not None and gone.count > TOLERANCE_BYTES:
        half = grew is not None and grew.count >= gone.count // 2
        lost = gone.count if gone.of_engine or half else 0
    spilled = max(lost, moved if moved > SIGN_BYTES else 0)
    if not spilled:
        return verdict
    figures = (one for one in (gone, grew) if one is not None)
    said = [Evidence(one.line, "since it became ready") for one in figures]
    if moved > SIGN_BYTES:
        said.insert(0, _moved_line(moved))
    return Verdict(
        residency=Spilled(spilled),
        evidence=tuple(said),
        reason=f"{_mib(spilled)} of it left device memory while it served",
        confidence=Confidence.MEASURED,
        contradiction=f"when it became ready it was {verdict.label}: {verdict.reason}",
    )


def _mib(count: int) -> str:
    return f"{count / MIB:.0f} MiB"
