"""What each engine of ours holds of one card, so that none counts as another's. Pure.

A card counts for all of its clients together. Each engine is judged by differences between
two looks; ``framed`` takes out of a look what the other engines of ours hold, so that for
each of them the card looks as if it were alone on it. Covers the figures; when memory
moves, and who has to wait for that, is ``mtpd.supervise.keeper``'s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mtpd.engine.memory_look import Figure, free, pinned_now, room, taken
from mtpd.types import Absent, Value

if TYPE_CHECKING:
    from mtpd.engine.memory_look import MemoryLook
    from mtpd.types import Reading
    from mtpd.units import EngineId

__all__ = ["Shares"]


@dataclass(slots=True)
class _Share:
    """One engine's.

    Attributes:
        profile: Whose it is.
        before: The card before its start.
        vram_bytes: Device memory that it holds; None until it was measured.
        gtt_bytes: Host memory that the card has mapped for it.
        pids: Its processes.
        owed: Whether it has ended, and what it held has not come back.
    """

    profile: str
    before: MemoryLook
    vram_bytes: int | None = None
    gtt_bytes: int = 0
    pids: frozenset[int] = frozenset()
    owed: bool = False


class Shares:
    """The shares of one card, by engine start."""

    def __init__(self) -> None:
        self._shares: dict[EngineId, _Share] = {}
        self._room_bytes: int | None = None

    def begin(self, engine: EngineId, profile: str, before: MemoryLook) -> None:
        """An engine is about to start onto a card that looks so, framed for it."""
        self._shares[engine] = _Share(profile, before)
        self._see_room(engine, room(before, None))

    def note(self, engine: EngineId, now: MemoryLook, *, settled: bool) -> None:
        """Take in a look that is framed for an engine.

        Args:
            engine: Which start; one that is not known is passed over.
            now: With its processes in ``engine``.
            settled: Whether what it holds was counted before, so that a difference of the
                whole card says less than that.
        """
        share = self._shares.get(engine)
        if share is None:
            return
        share.pids = now.engine
        own = taken(share.before, now)
        if isinstance(own, Figure) and (own.of_engine or not settled):
            share.vram_bytes = max(0, own.count)
        if not settled and (pinned := pinned_now(share.before, now)) is not None:
            share.gtt_bytes = max(0, pinned.count)
        left = free(now.vram_total_bytes, now.vram_used_bytes)
        if left is None:
            return
        if isinstance(own, Figure) and own.of_engine:
            self._see_room(engine, left + own.count)
        elif (there := room(share.before, now)) is not None:
            self._see_room(engine, there + share.before.beside_bytes - now.beside_bytes)

    def owe(self, engine: EngineId) -> None:
        """An engine has ended and its memory has not come back: nobody finds it free."""
        share = self._shares.get(engine)
        if share is not None and not share.owed:
            share.owed = True
            self._add_room(-(share.vram_bytes or 0))

    def end(self, engine: EngineId) -> None:
        """What an engine held is back."""
        share = self._shares.pop(engine, None)
        if share is not None and share.owed:
            self._add_room(share.vram_bytes or 0)

    def withdraw(self, engine: EngineId) -> None:
        """A start is not waited for any more; what it was seen to hold it still holds."""
        if engine in self._shares and self._shares[engine].vram_bytes is None:
            self.end(engine)

    def framed(self, look: MemoryLook, engine: EngineId | None) -> MemoryLook:
        """A look without what the other engines of ours hold."""
        others = [share for key, share in self._shares.items() if key != engine]
        vram_bytes = sum(share.vram_bytes or 0 for share in others)
        pids = frozenset().union(*(share.pids for share in others))
        processes = look.processes
        if not isinstance(processes, Absent):
            processes = tuple(one for one in processes if one.pid not in pids)
        return replace(
            look,
            vram_total_bytes=_less(look.vram_total_bytes, vram_bytes),
            vram_used_bytes=_less(look.vram_used_bytes, vram_bytes),
            gtt_used_bytes=_less(look.gtt_used_bytes, sum(share.gtt_bytes for share in others)),
            processes=processes,
            beside_bytes=vram_bytes,
        )

    def held(self, profile: str) -> int | None:
        """Device memory that the engine of a profile holds; None where that is not known."""
        found = [share.vram_bytes for share in self._present() if share.profile == profile]
        return found[-1] if found else None

    def of(self, engine: EngineId) -> int | None:
        """Device memory that an engine start holds; None where that is not known."""
        share = self._shares.get(engine)
        return None if share is None else share.vram_bytes

    @property
    def profiles(self) -> frozenset[str]:
        """Whose engines hold memory."""
        return frozenset(share.profile for share in self._present())

    @property
    def room_bytes(self) -> int | None:
        """Device memory that there would be without any of them; None where unknown."""
        return self._room_bytes if self._present() else None

    def _see_room(self, engine: EngineId, for_it: int | None) -> None:
        """Take in how much there is for one engine beside the others."""
        mine = self._shares[engine]
        others = sum(one.vram_bytes or 0 for one in self._present() if one is not mine)
        self._room_bytes = None if for_it is None else for_it + others

    def _add_room(self, more: int) -> None:
        if self._room_bytes is not None:
            self._room_bytes += more

    def _present(self) -> tuple[_Share, ...]:
        return tuple(share for share in self._shares.values() if not share.owed)


def _less(reading: Reading[int], taken_out: int) -> Reading[int]:
    if not isinstance(reading, Value):
        return reading
    return Value(reading.value - taken_out, reading.source)
