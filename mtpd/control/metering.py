"""What an engine's own counters moved by since they were last read.

The only source of the acceptance by position, and it is cumulative: what one request did
is the difference of two readings with nothing else in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mtpd.engine import prom
from mtpd.engine.client import EngineClient
from mtpd.errors import UpstreamError
from mtpd.types import Absent

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.engine.prom import SpecCounters
    from mtpd.proxy.engines import Lease

__all__ = ["Meter"]


class Beside(Protocol):
    """Reaches an engine that is not being measured."""

    def __call__(self, profile: str, /) -> Lease | None:
        """The ready engine of a profile, for a question that needs no slot."""


class Meter:
    """Reads the counters of serving engines.

    Args:
        beside: Reaches them.
        told: Takes every difference that was found.
        seen: Takes every reading: the model's name, the engine start, its counters.
    """

    def __init__(
        self,
        beside: Beside,
        *,
        told: Callable[[SpecCounters], None] = lambda _moved: None,
        seen: Callable[[str, str, SpecCounters], None] = lambda _profile, _engine, _now: None,
    ) -> None:
        self._beside, self._told, self._seen = beside, told, seen
        self._last: dict[str, tuple[str, SpecCounters]] = {}

    async def moved(self, profile: str, engine_id: str) -> SpecCounters | Absent:
        """What happened since the last reading of this engine start.

        Absent for the first one, and where the engine is another one by now or does not
        answer; the next difference begins here.
        """
        now = await self._read(profile, engine_id)
        before = self._last.pop(profile, None)
        if isinstance(now, Absent):
            return now
        self._seen(profile, engine_id, now)
        self._last[profile] = (engine_id, now)
        if before is None or before[0] != engine_id:
            return Absent("the counters of this engine start were not read before")
        moved = prom.delta(before[1], now)
        if not isinstance(moved, Absent):
            self._told(moved)
        return moved

    async def _read(self, profile: str, engine_id: str) -> SpecCounters | Absent:
        lease = self._beside(profile)
        if lease is None or lease.engine_id != engine_id:
            return Absent("the engine does not serve any more")
        try:
            async with EngineClient(lease.endpoint) as client:
                return prom.spec_counters(await client.metrics_text())
        except UpstreamError as error:
            return Absent(str(error))
