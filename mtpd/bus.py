"""The event bus: one publisher side, any number of readers, a bounded memory.

Covers sequence numbers, replay and readers that fall behind. What the events are is
``mtpd.events``; how they reach a browser is ``mtpd.api.sse``. Nothing here blocks, and
no reader can hold up another or the publisher: each has a queue of its own, and one
whose queue is full is dropped.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, assert_never

import anyio
import structlog
from anyio.lowlevel import checkpoint

from mtpd.clock import rfc3339
from mtpd.events import (
    ConfigRefused,
    ConfigReloaded,
    DaemonStarted,
    DaemonStopping,
    DecisionMade,
    DeviceCapChanged,
    DeviceStateChanged,
    DeviceThrottled,
    EngineLoadProgress,
    EngineTransition,
    Envelope,
    MachineResumed,
    MeasurementTaken,
    MemoryCreeps,
    OperationChanged,
    RequestFinished,
    ResidencyJudged,
    StoreChanged,
    type_name,
)
from mtpd.units import Seq

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mtpd.clock import Clock
    from mtpd.events import Event

__all__ = ["Bus", "SubscriberDropped", "Subscription"]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SubscriberDropped:
    """The last item of a reader that was too slow.

    Attributes:
        after: The last event it was given; subscribe again after this one.
    """

    after: Seq


class Subscription:
    """One reader's place in the stream: an iterator of envelopes.

    Ends when the bus is closed, or with ``SubscriberDropped``.
    """

    def __init__(self, *, backlog: tuple[Envelope, ...], after: Seq, limit: int) -> None:
        self._queue = deque(backlog)
        self._limit = limit
        self._after = after
        self._wake = anyio.Event()
        self._state = "open"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Envelope | SubscriberDropped:
        while not self._queue and self._state == "open":
            self._wake = anyio.Event()
            await self._wake.wait()
        # A busy stream must not keep its reader from being cancelled.
        await checkpoint()
        if self._queue:
            envelope = self._queue.popleft()
            self._after = envelope.seq
            return envelope
        if self._state == "dropped":
            self._state = "closed"
            return SubscriberDropped(self._after)
        raise StopAsyncIteration

    def offer(self, envelope: Envelope) -> bool:
        """Queue an envelope; False, and the end of the stream, when the queue is full."""
        if len(self._queue) >= self._limit:
            self._state = "dropped"
        else:
            self._queue.append(envelope)
        self._wake.set()
        return self._state == "open"

    def end(self) -> None:
        """Let the reader finish what is queued and stop."""
        if self._state == "open":
            self._state = "closed"
        self._wake.set()


class Bus:
    """Numbers events, keeps the newest, and hands each to every reader.

    Args:
        boot: Identifies this life of the daemon; sequences restart with it.
        clock: Dates the events.
        keep: How many events can be replayed.
        queue: How many events a reader may lie behind before it is dropped.
    """

    def __init__(self, *, boot: str, clock: Clock, keep: int = 1024, queue: int = 256) -> None:
        self.boot = boot
        self.dropped = 0
        """How many readers were dropped because they were too slow."""
        self._clock = clock
        self._ring: deque[Envelope] = deque(maxlen=keep)
        self._queue = queue
        self._seq = 0
        self._readers: set[Subscription] = set()
        self._closed = False

    @property
    def seq(self) -> Seq:
        """The number of the newest event; 0 before the first."""
        return Seq(self._seq)

    def stalled(self) -> None:
        """Count a reader that was dropped because it took nothing from its connection."""
        self.dropped += 1

    def publish(self, event: Event, *, cause: Seq | None = None) -> Envelope:
        """Number an event and hand it to every reader; never waits.

        Args:
            event: What happened.
            cause: The event that led to it.
        """
        self._seq += 1
        envelope = Envelope(
            boot=self.boot,
            seq=Seq(self._seq),
            at=rfc3339(self._clock.utc()),
            cause=cause,
            type=type_name(type(event)),
            event=event,
            ids=_ids(event),
        )
        self._ring.append(envelope)
        slow = [reader for reader in self._readers if not reader.offer(envelope)]
        for reader in slow:
            self._readers.discard(reader)
            self.dropped += 1
            log.warning("bus.subscriber_dropped", seq=self._seq, queue=self._queue)
        return envelope

    @asynccontextmanager
    async def subscribe(self, after: Seq | None = None) -> AsyncIterator[Subscription]:
        """Read events from here on, or those after a number, as far as they are kept.

        A replay that begins later than ``after + 1`` has lost what lies between: compare
        the first envelope's ``seq``.
        """
        start = self.seq if after is None else after
        backlog = tuple(envelope for envelope in self._ring if envelope.seq > start)
        # The replay itself must not count as being slow.
        limit = self._queue + len(backlog)
        reader = Subscription(backlog=backlog, after=start, limit=limit)
        if self._closed:
            reader.end()
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)

    def close(self) -> None:
        """End every reader's stream once it has read what is queued."""
        self._closed = True
        for reader in self._readers:
            reader.end()


def _ids(event: Event) -> dict[str, str]:
    """What an event is about."""
    ids: dict[str, str] = {}
    match event:
        case DaemonStarted() | DaemonStopping() | ConfigReloaded() | ConfigRefused():
            pass
        case StoreChanged() | MachineResumed():
            pass
        case EngineTransition() | EngineLoadProgress() | ResidencyJudged() | MemoryCreeps():
            ids = {"engine": event.engine_id, "profile": event.profile}
        case MeasurementTaken(measurement=taken):
            ids = {"measurement": str(taken.id), "engine": taken.start_id}
            ids |= _operation(taken.operation_id)
        case DecisionMade(decision=made):
            ids = {"decision": str(made.id), "subject": made.subject}
            ids |= _operation(made.operation_id)
        case OperationChanged(operation=operation):
            ids = _operation(operation.id)
        case RequestFinished():
            ids = {"request": event.request_id, "profile": event.profile}
        case DeviceStateChanged() | DeviceCapChanged() | DeviceThrottled():
            ids = {"device": event.device}
        case _:
            assert_never(event)
    return ids


def _operation(operation_id: str | None) -> dict[str, str]:
    return {} if operation_id is None else {"operation": operation_id}
