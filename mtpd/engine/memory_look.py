"""A card's memory at one moment, and what two moments say about one engine. Pure.

Covers differences and where each figure comes from. A counter that cannot be read gives
no figure at all, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mtpd.types import Absent, Value
from mtpd.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.types import ProcessMemory, Reading

__all__ = [
    "Figure",
    "MemoryLook",
    "fell",
    "free",
    "grown",
    "grown_vram",
    "holders",
    "moved_out",
    "pinned_now",
    "room",
    "taken",
    "unreturned",
]

_BLIND_BYTES = 64 * MIB
"""A process that is counted with less than this, while the card lost gigabytes, is one that
the source cannot see into."""

SLACK_BYTES = 64 * MIB
"""So much more than before a start may stay in use after it: the driver's own."""

_MOST_HOLDERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLook:
    """One look at a card.

    Attributes:
        at_s: When, monotonic seconds.
        vram_total_bytes: Device memory.
        vram_used_bytes: Used by all clients together.
        gtt_used_bytes: Host memory that the card has mapped, of all clients.
        processes: Who holds how much, as far as that can be seen.
        engine: Pids of the engine whose memory is asked about.
        beside_bytes: What other engines of ours hold; it is in none of the other figures.
    """

    at_s: float
    vram_total_bytes: Reading[int]
    vram_used_bytes: Reading[int]
    gtt_used_bytes: Reading[int]
    processes: tuple[ProcessMemory, ...] | Absent
    engine: frozenset[int] = field(default=frozenset())
    beside_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Figure:
    """Bytes with the reading that they come from, as it is quoted.

    Attributes:
        of_engine: Whether only the engine's own processes were counted.
    """

    count: int
    line: str
    of_engine: bool


def taken(before: MemoryLook, now: MemoryLook) -> Figure | str:
    """Device memory that the engine took, or why that cannot be said.

    Counted for its processes where a source can see into them, else by the difference of
    the whole card, in which other programs come and go. KFD counts what a process
    allocated, wherever it lies by now: where the card lacks it and mapped host memory has
    grown instead, the card is right.
    """
    own = _of_engine(now, lambda one: one.vram_bytes)
    card = _difference(before.vram_used_bytes, now.vram_used_bytes)
    if own is not None and card is not None:
        blind = own < _BLIND_BYTES <= card // 2
        mapped = _difference(before.gtt_used_bytes, now.gtt_used_bytes)
        moved = own - card > _BLIND_BYTES and mapped is not None and 2 * mapped >= own - card
        own = None if blind or moved else own
    if own is not None:
        return Figure(own, f"device memory of its processes: {_mib(own)}", of_engine=True)
    if card is not None:
        line = _in_use(before, now)
        return Figure(card, line, of_engine=False)
    return _why(before.vram_used_bytes) or _why(now.vram_used_bytes) or "it cannot be read"


def pinned_now(before: MemoryLook, now: MemoryLook) -> Figure | None:
    """Host memory that the card has mapped for the engine, or None where nobody counts it."""
    own = _of_engine(now, lambda one: one.gtt_bytes)
    if own is not None:
        line = f"mapped host memory of its processes: {_mib(own)}"
        return Figure(own, line, of_engine=True)
    return grown(before, now)


def grown(before: MemoryLook, now: MemoryLook) -> Figure | None:
    """By how much the mapped host memory of the whole card has grown."""
    card = _difference(before.gtt_used_bytes, now.gtt_used_bytes)
    if card is None:
        return None
    line = f"mapped host memory in use: {_span(before.gtt_used_bytes, now.gtt_used_bytes)}"
    return Figure(card, line, of_engine=False)


def grown_vram(before: MemoryLook, now: MemoryLook) -> int | None:
    """By how much the engine's device memory has grown; of the whole card if need be."""
    figure = fell(before, now)
    return None if figure is None else -figure.count


def fell(before: MemoryLook, now: MemoryLook) -> Figure | None:
    """By how much the engine's device memory has shrunk; of the whole card if need be."""
    was = _of_engine(before, lambda one: one.vram_bytes)
    own = _of_engine(now, lambda one: one.vram_bytes)
    if was is not None and own is not None and was >= _BLIND_BYTES:
        line = f"device memory of its processes: {_mib(was)} before, {_mib(own)} now"
        return Figure(was - own, line, of_engine=True)
    card = _difference(before.vram_used_bytes, now.vram_used_bytes)
    if card is None:
        return None
    line = _in_use(before, now)
    return Figure(-card, line, of_engine=False)


def moved_out(look: MemoryLook) -> int | None:
    """Bytes of the engine that the kernel moved out of device memory, where it counts them."""
    return _of_engine(look, lambda one: one.evicted_bytes)


def unreturned(before: MemoryLook, now: MemoryLook) -> int | None:
    """Bytes that an ended engine has not given back, 0 if all is back, None if unknown.

    What other processes took in the meantime is theirs. An engine that the driver still
    lists holds what it is listed with, and at least a byte.

    Args:
        before: The card before the start of the engine.
        now: The card, with the pids of the ended engine in ``engine``.
    """
    card = _difference(before.vram_used_bytes, now.vram_used_bytes)
    if card is None:
        return None
    left = card - _taken_by_others(before, now)
    if left > SLACK_BYTES:
        return left
    return max(left, 1) if _lists_engine(now) else 0


def _taken_by_others(before: MemoryLook, now: MemoryLook) -> int:
    """Growth of processes that are not the engine's; 0 where they cannot be seen."""
    if isinstance(before.processes, Absent) or isinstance(now.processes, Absent):
        return 0
    had = {one.pid: one.vram_bytes for one in before.processes}
    grown_by = 0
    for one in now.processes:
        was = had.get(one.pid, Value(0, "not there"))
        if one.pid not in now.engine and isinstance(was, Value):
            has = one.vram_bytes
            grown_by += max(0, has.value - was.value) if isinstance(has, Value) else 0
    return grown_by


def room(before: MemoryLook | None, now: MemoryLook | None) -> int | None:
    """Bytes that were there for an engine; None where free memory was not measured.

    Args:
        before: The card before its start; what was free then.
        now: The card by now: what other programs took in between was not there for it.
    """
    found = None if before is None else free(before.vram_total_bytes, before.vram_used_bytes)
    if before is None or now is None or found is None or not _lists_engine(now):
        return found
    return max(0, found - _taken_by_others(before, now))


def _lists_engine(look: MemoryLook) -> bool:
    """Whether the engine is seen; in a container the driver may list it by another pid."""
    return not isinstance(look.processes, Absent) and any(
        one.pid in look.engine for one in look.processes
    )


def free(total: Reading[int], used: Reading[int]) -> int | None:
    """Bytes that nobody holds; None where either counter cannot be read."""
    if not isinstance(total, Value) or not isinstance(used, Value):
        return None
    return total.value - used.value


def holders(look: MemoryLook) -> str:
    """Who holds device memory, the largest first, as one phrase."""
    if isinstance(look.processes, Absent):
        return f"who holds it cannot be seen: {look.processes.reason}"
    held = [
        (one.vram_bytes.value, f"{one.pid} {one.name or '?'} {_mib(one.vram_bytes.value)}")
        for one in look.processes
        if isinstance(one.vram_bytes, Value) and one.vram_bytes.value >= MIB
    ]
    said = [text for _, text in sorted(held, reverse=True)[:_MOST_HOLDERS]]
    if isinstance(look.vram_used_bytes, Value):
        rest = look.vram_used_bytes.value - sum(count for count, _ in held)
        if rest > SLACK_BYTES or not said:
            said.append(f"{_mib(rest)} that no visible process owns")
    return "; ".join(said) or "no visible process holds any"


def _of_engine(look: MemoryLook, pick: Callable[[ProcessMemory], Reading[int]]) -> int | None:
    """Sum over the engine's processes; None unless every one of them was counted."""
    if isinstance(look.processes, Absent):
        return None
    readings = [pick(one) for one in look.processes if one.pid in look.engine]
    values = [reading.value for reading in readings if isinstance(reading, Value)]
    return sum(values) if values and len(values) == len(readings) else None


def _difference(before: Reading[int], now: Reading[int]) -> int | None:
    if isinstance(before, Value) and isinstance(now, Value):
        return now.value - before.value
    return None


def _span(before: Reading[int], now: Reading[int]) -> str:
    return f"{_said(before)} before, {_said(now)} now"


def _in_use(before: MemoryLook, now: MemoryLook) -> str:
    span = _span(before.vram_used_bytes, now.vram_used_bytes)
    return f"device memory in use: {span}{_aside(now)}"


def _aside(look: MemoryLook) -> str:
    """Words for what was left out of the counters of the whole card."""
    return f", less {_mib(look.beside_bytes)} of other engines" if look.beside_bytes else ""


def _said(reading: Reading[int]) -> str:
    return _mib(reading.value) if isinstance(reading, Value) else reading.reason


def _why(reading: Reading[int]) -> str | None:
    return None if isinstance(reading, Value) else reading.reason


def _mib(count: int) -> str:
    return f"{count / MIB:.0f} MiB"
