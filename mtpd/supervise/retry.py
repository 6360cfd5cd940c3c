"""What follows the end of a process: the retry rule of each failure class.

| class | rule |
|---|---|
| config | never: the next start would fail the same way |
| store | not by itself, and it is no failure of the engine: the next request tries again |
| oom_vram | once, after the memory came back |
| killed_by_operator | stopped until someone starts it again |
| crash, hang, gpu_init, oom_host | backoff, until the breaker opens |
| gpu_hang, device_lost | the same, once the card answers again; never at once |
| vram_unrecovered, gpu_failed | blocked until the card is free and answers |
| wedged | never entered here: nothing ends, so nothing follows |
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from mtpd.supervise.backoff import Memory, breaker, delay_s, remember
from mtpd.supervise.states import (
    Backoff,
    Blocked,
    Failed,
    Halt,
    Launch,
    Rest,
    Retry,
    Stopped,
)
from mtpd.types import FailureClass

if TYPE_CHECKING:
    from mtpd.supervise.messages import Exited, SpawnFailed
    from mtpd.supervise.states import Cause, Then
    from mtpd.types import LaunchPlan

__all__ = ["RESETS", "after_failure", "resolve"]

VRAM_RETRIES = 1

RESETS = frozenset({FailureClass.GPU_HANG, FailureClass.DEVICE_LOST})
"""Failures after which the driver resets the card, which takes its time."""


def resolve(memory: Memory, then: Then, event: Exited | SpawnFailed) -> tuple[Memory, Rest, str]:
    """Return what follows now that the process is gone, and why."""
    match then:
        case Halt(reason):
            return memory, Stopped(), reason
        case Launch(plan):
            return memory, then, f"starts {plan.arm}"
        case Retry(plan, cause):
            cause = replace(cause, exit_code=event.cause.exit_code)
            return after_failure(memory, plan, cause, event, served_long=False)
        case _:
            assert_never(then)


def after_failure(
    memory: Memory,
    plan: LaunchPlan,
    cause: Cause,
    event: Exited | SpawnFailed,
    *,
    served_long: bool,
) -> tuple[Memory, Rest, str]:
    """Apply the retry rule of ``cause``; an engine that served long restarts at once."""
    match cause.failure:
        case FailureClass.CONFIG | FailureClass.WEDGED | FailureClass.STORE:
            return memory, Failed(plan=plan, cause=cause), cause.reason
        case FailureClass.KILLED_BY_OPERATOR:
            return memory, Stopped(), cause.reason
        case FailureClass.VRAM_UNRECOVERED | FailureClass.GPU_FAILED:
            return memory, Blocked(plan=plan, cause=cause), cause.reason
        case FailureClass.OOM_VRAM if memory.vram_retries >= VRAM_RETRIES:
            return memory, Failed(plan=plan, cause=cause), f"{cause.reason}, again"
        case FailureClass.OOM_VRAM:
            memory = replace(memory, vram_retries=memory.vram_retries + 1)
        case _:
            pass
    at_once = served_long and cause.failure not in RESETS
    return _again(Memory() if served_long else memory, plan, cause, event, at_once=at_once)


def _again(
    memory: Memory,
    plan: LaunchPlan,
    cause: Cause,
    event: Exited | SpawnFailed,
    *,
    at_once: bool,
) -> tuple[Memory, Rest, str]:
    memory = remember(memory, event.now)
    if opened := breaker(memory, event.now):
        reason = f"breaker open: {opened}; the last: {cause.reason}"
        opened_by = replace(cause, reason=reason, breaker_open=True)
        return memory, Failed(plan=plan, cause=opened_by), reason
    if at_once:
        return memory, Launch(plan, cause), cause.reason
    until = event.now + delay_s(memory.streak, event.jitter)
    waiting = Backoff(plan=plan, cause=cause, attempt=memory.streak, until=until)
    return memory, waiting, cause.reason
