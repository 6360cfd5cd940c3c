"""Why an engine ended: its class, one sentence, and what to do about it.

The exit status rarely says more than "failed" (code 1), so the log lines decide first.
Pure: what was observed goes in, a value comes out; retrying is the supervisor's matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.engine.facts import (
    Aborted,
    BadArgument,
    BindFailed,
    CleaningUp,
    DeviceLost,
    GpuError,
    GpuHang,
    LibraryMissing,
    LoadFailed,
    NoMtpLayers,
    OutOfMemory,
    SecondInterrupt,
)
from mtpd.engine.failures_seen import NOTHING_ASKED, SIGNALS, Asked, Seen
from mtpd.types import FailureClass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Failure", "classify"]

_SIGILL, _SIGKILL = 4, 9
_AMX = "AMX is not ready"
_FROM_OUTSIDE = frozenset({1, 2, 3, 15})
_LAUNCH = {
    126: (
        "the engine's binary cannot be executed",
        "Check its rights (chmod +x) and that it was built for this machine.",
    ),
    127: ("the engine's binary was not found", "Check engine.binary."),
}

_LOG_HINT = "Read the engine's log around that line: mtpctl logs."
_BY_HAND_HINT = "Start it by hand with the line that mtpd plan MODEL prints."
_SMALLER = "Use fewer slots or a shorter context, then a smaller KV type, then less depth."
_FETCH_HINT = "Fetch it again; the download was cut short."


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an engine ended.

    Attributes:
        failure: The class; each has its own retry rule.
        sentence: One sentence for people, without a full stop's worth of jargon.
        hint: What to do next.
        line: The log line that tells, or None where the status alone tells.
    """

    failure: FailureClass
    sentence: str
    hint: str
    line: str | None = None


def classify(
    *,
    exit_code: int | None,
    signal: int | None,
    ready_before: bool,
    lines: Sequence[str],
    asked: Asked = NOTHING_ASKED,
    oom_kills: int | None = None,
) -> Failure:
    """Say why an engine ended that was not asked to; total over every input.

    Args:
        exit_code: Of the process; shell spellings (132 for SIGILL) and negative ones are
            understood. None if a signal ended it or it still lives.
        signal: Number of the signal that ended it, or None. Both None: it hangs.
        ready_before: Whether this start had been ready.
        lines: Its last log lines, oldest first.
        asked: What its command line asked for; names the cause of a lack of memory.
        oom_kills: Processes that the kernel killed for want of memory while it lived; None
            where nobody counts.
    """
    seen = Seen(exit_code, signal, ready=ready_before, lines=lines, asked=asked)
    for rule in _RULES:
        found = rule(seen)
        if found is not None:
            return found
    if seen.signal == _SIGKILL:
        return _killed(oom_kills)
    return _by_status(seen)


def _config(sentence: str, hint: str, line: str | None) -> Failure:
    return Failure(failure=FailureClass.CONFIG, sentence=sentence, hint=hint, line=line)


def _operator(sentence: str, line: str | None = None) -> Failure:
    hint = "Stop engines through mtpctl; start it again with mtpctl load."
    failure = FailureClass.KILLED_BY_OPERATOR
    return Failure(failure=failure, sentence=sentence, hint=hint, line=line)


def _from_outside(seen: Seen) -> Failure | None:
    second = seen.first(SecondInterrupt)
    if second is not None:
        return _operator("a second signal from outside ended the engine at once", second[0])
    if seen.signal in _FROM_OUTSIDE:
        return _operator(f"the engine was ended by {SIGNALS[seen.signal]} from outside")
    return None


def _illegal_instruction(seen: Seen) -> Failure | None:
    if seen.signal != _SIGILL:
        return None
    return _config(
        "this binary was built for another CPU: it died of an illegal instruction (SIGILL)",
        "Use a build for this machine, or the portable one: pip install 'mtpd[embedded]'.",
        next((line for line in seen.lines if _AMX in line), None),
    )


def _gpu(seen: Seen) -> Failure | None:
    hang = seen.first(GpuHang)
    if hang is not None:
        return Failure(
            failure=FailureClass.GPU_HANG,
            sentence=f"the GPU hung: {hang[1].what}",
            hint="The driver resets the card; the power cap may be gone. See the kernel log.",
            line=hang[0],
        )
    lost = seen.first(DeviceLost)
    if lost is not None:
        return Failure(
            failure=FailureClass.DEVICE_LOST,
            sentence=f"the GPU was lost: {lost[1].what}",
            hint="Look for a GPU reset in the kernel log; a longer amdgpu.lockup_timeout may help.",
            line=lost[0],
        )
    return None


def _gpu_error(seen: Seen) -> Failure | None:
    error = seen.first(GpuError)
    if error is None:
        return None
    line, f = error
    if "no kernel image" in f.what or "invalid device function" in f.what:
        return _config(
            f"this binary was not built for this GPU: {f.what}",
            "Use a build for this card's architecture, e.g. gfx906.",
            line,
        )
    return Failure(
        failure=FailureClass.CRASH,
        sentence=f"the GPU runtime failed: {f.what}",
        hint=_LOG_HINT,
        line=line,
    )


def _start(seen: Seen) -> Failure | None:
    """Failures before any model is looked at."""
    missing = seen.first(LibraryMissing)
    if missing is not None:
        line, library = missing
        hint = "Install it, or use the portable engine: pip install 'mtpd[embedded]'."
        return _config(f"the engine cannot start: {library.name} is not installed", hint, line)
    bad = seen.first(BadArgument)
    if bad is not None and bad[1].argument:
        line, argument = bad
        return _config(
            f"the engine refuses {argument.argument}: {argument.why}",
            "Another build may spell it differently: see its --help and mtpd plan MODEL.",
            line,
        )
    bind = seen.first(BindFailed)
    if bind is not None:
        return _bind(*bind)
    return None


def _bind(line: str, bind: BindFailed) -> Failure:
    if bind.host.startswith("/"):
        return _config(
            f"the engine cannot listen on {bind.host}",
            "Remove the socket file that an engine left behind, or check the folder's rights.",
            line,
        )
    return _config(
        f"the engine cannot listen on {bind.host} port {bind.port}: the address is in use",
        f"See who holds it: ss -ltnp 'sport = :{bind.port}'.",
        line,
    )


def _memory(seen: Seen) -> Failure | None:
    found = seen.first(OutOfMemory)
    if found is None:
        return _device_limit(seen)
    line, f = found
    asked = "" if f.amount is None else f" ({f.amount} were asked for)"
    if f.on_host:
        return Failure(
            failure=FailureClass.OOM_HOST,
            sentence=f"there is not enough host memory{asked}",
            hint="Use a shorter context, fewer slots or a smaller --cache-ram.",
            line=line,
        )
    return Failure(
        failure=FailureClass.OOM_VRAM,
        sentence=f"there is not enough device memory{_for_what(seen.asked)}{asked}",
        hint=_SMALLER,
        line=line,
    )


def _for_what(asked: Asked) -> str:
    """Slots times context come first: that product is what mostly asks for too much."""
    if asked.slots is None or asked.context is None:
        return ""
    slots = "1 slot" if asked.slots == 1 else f"{asked.slots} slots"
    depth = f", drafting {asked.depth} deep" if asked.depth else ""
    return f" for {slots} and a context of {asked.context} tokens{depth}"


def _device_limit(seen: Seen) -> Failure | None:
    found = seen.first(Aborted)
    if found is None or "cannot run the operation" not in found[1].what:
        return None
    device = found[1].what.partition("in a buffer (")[2].partition(")")[0] or "the device"
    return Failure(
        failure=FailureClass.OOM_VRAM,
        sentence=f"the cache needs one buffer larger than {device} allows",
        hint="Use a shorter context or fewer slots.",
        line=found[0],
    )


def _no_mtp(seen: Seen) -> Failure | None:
    found = seen.first(NoMtpLayers)
    if found is None:
        return None
    return _config(
        f"{seen.model} has no MTP layers, and the profile drafts with MTP",
        'Use a GGUF that was converted with its NextN block, or set drafter.kind = "none".',
        found[0],
    )


_CAUSES = (
    ("No such file", "{} was not found", "Check the path in the profile."),
    (
        "ermission denied",
        "{} cannot be read: permission denied",
        "Let the daemon's user read the file and enter its folders.",
    ),
    ("magic", "{} is not a GGUF file", "Check the path, or fetch it again."),
    ("not within the file bounds", "{} is incomplete: it ends before its data does", _FETCH_HINT),
    ("failed to read", "{} is incomplete: it ends inside its header", _FETCH_HINT),
    (
        "unknown model architecture",
        "this build does not know the architecture of {}",
        "Use a newer llama-server.",
    ),
)


def _load(seen: Seen) -> Failure | None:
    found = seen.first(LoadFailed)
    if found is None:
        return None
    line, f = found
    model = f.path or seen.model
    for text, sentence, hint in _CAUSES:
        if text in f.why:
            return _config(sentence.format(model), hint, line)
    return _config(
        f"{model} could not be loaded" + (f": {f.why}" if f.why else ""), _LOG_HINT, line
    )


def _abort(seen: Seen) -> Failure | None:
    found = seen.first(Aborted)
    if found is None:
        return None
    line, f = found
    if "n_outputs_max" in f.what:
        return _config(
            "the engine was started with --spec-draft-n-max 0, which aborts it",
            "Depth 0 means leaving --spec-type out.",
            line,
        )
    return Failure(
        failure=FailureClass.CRASH,
        sentence=f"the engine aborted: {f.what}",
        hint=_LOG_HINT,
        line=line,
    )


def _own_words(seen: Seen) -> Failure | None:
    """``error: ...`` of the program itself, where nothing better was found."""
    found = seen.first(BadArgument)
    if found is None:
        return None
    return _config(f"the engine does not start: {found[1].why}", _BY_HAND_HINT, found[0])


_RULES: tuple[Callable[[Seen], Failure | None], ...] = (
    _from_outside,
    _illegal_instruction,
    _gpu,
    _start,
    _memory,
    _gpu_error,
    _no_mtp,
    _load,
    _abort,
    _own_words,
)


def _by_status(seen: Seen) -> Failure:
    """No line tells; what the status alone says."""
    code = seen.exit_code
    if seen.signal is not None:
        return _by_signal(seen.signal)
    if code is None:
        return Failure(
            failure=FailureClass.HANG,
            sentence="the engine neither answers nor ends",
            hint="mtpd ends and restarts it; if that repeats, see the kernel log.",
        )
    if code == 0:
        return _by_itself(seen)
    if code in _LAUNCH:
        return _config(*_LAUNCH[code], None)
    when = "after it had been ready" if seen.ready else "before it was ready"
    return Failure(
        failure=FailureClass.CRASH,
        sentence=f"the engine ended with code {code} {when} and did not say why",
        hint=_BY_HAND_HINT,
    )


def _by_itself(seen: Seen) -> Failure:
    cleaning = seen.first(CleaningUp)
    if cleaning is None and not seen.ready:
        return _config(
            "the program ended at once and without a word",
            "Is engine.binary really a llama-server?",
            None,
        )
    line = None if cleaning is None else cleaning[0]
    return _operator("the engine was stopped in an orderly way from outside", line)


def _killed(oom_kills: int | None) -> Failure:
    """SIGKILL that was not ours: the kernel's where it has counted one, somebody's where not."""
    if oom_kills == 0:
        return Failure(
            failure=FailureClass.CRASH,
            sentence="the engine was ended by SIGKILL from outside: the kernel has killed nothing "
            "for want of memory meanwhile",
            hint="It was somebody's kill -9, or a program that watches memory, such as earlyoom.",
        )
    said = "the engine was ended by SIGKILL, most likely for want of host memory"
    if oom_kills is not None:
        # One of the whole machine's, over all the time that the engine lived.
        said += f": the kernel has killed {oom_kills} of this machine's processes for it meanwhile"
    return Failure(
        failure=FailureClass.OOM_HOST,
        sentence=said,
        hint="Look for the OOM killer in the kernel log; use a smaller --cache-ram.",
    )


def _by_signal(signal: int) -> Failure:
    name = SIGNALS.get(signal, f"signal {signal}")
    return Failure(
        failure=FailureClass.CRASH,
        sentence=f"the engine crashed ({name})",
        hint=_BY_HAND_HINT,
    )
