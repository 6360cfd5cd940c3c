"""Keeps requests that bring engines down away from them.

The rules are ``mtpd.proxy.poison``'s; here are the fingerprints, the time and the words.
What is known is lost with the daemon: a new engine binary needs a restart, after which
every request may try again.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from mtpd.proxy import poison
from mtpd.proxy.outcomes import RejectedError
from mtpd.proxy.payload import Whole
from mtpd.views import QuarantineView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mtpd.clock import Clock
    from mtpd.proxy.payload import Payload
    from mtpd.proxy.poison import Death, Entry, Rules

__all__ = ["Quarantine", "sentence"]

ID_LENGTH = 12


class Quarantine:
    """What is held against requests.

    Args:
        rules: When a request is quarantined; asked anew each time.
        clock: Source of time.
        told: Told of every request that is refused from now on.
    """

    def __init__(
        self,
        *,
        rules: Callable[[], Rules],
        clock: Clock,
        told: Callable[[Entry], Awaitable[object]],
    ) -> None:
        self._rules, self._clock, self._told = rules, clock, told
        self._record: poison.Record = ()

    def admit(self, profile: str, payload: Payload) -> bool:
        """Let a request pass; whether it must run alone.

        Raises:
            RejectedError: It is quarantined.
        """
        entry = self._find(profile, payload)
        if entry is None:
            return False
        if entry.quarantined:
            left_min = (entry.until - self._clock.now()) / 60
            msg = (
                f"{sentence(entry)}; it is not tried again for {left_min:.0f} min "
                f"(mtpctl quarantine clear {_id(entry)} lets it)"
            )
            raise RejectedError(msg, kind="poison", retry_after_s=1)
        return True

    async def died(self, profile: str, payload: Payload, death: Death) -> None:
        """An engine died of itself while it worked on this request."""
        fingerprint = _fingerprint(profile, payload)
        if fingerprint is None:
            return
        now = self._clock.now()
        before = self._record
        self._record = poison.died(before, fingerprint, death, now=now, rules=self._rules())
        entry = poison.find(self._record, fingerprint, now)
        if entry is not None and entry.quarantined and self._record is not before:
            await self._told(entry)

    def answered(self, profile: str, payload: Payload) -> None:
        """The request was answered whole."""
        entry = self._find(profile, payload)
        if entry is not None:
            self._record = poison.answered(self._record, entry.fingerprint)

    def release(self, which: str) -> Entry | None:
        """Let the quarantined request with this id try again; None where there is none."""
        entry = next((e for e in self._quarantined() if _id(e) == which), None)
        if entry is not None:
            self._record = poison.released(self._record, entry.fingerprint)
        return entry

    def views(self) -> tuple[QuarantineView, ...]:
        """Every request that is refused, oldest first."""
        now = self._clock.now()
        return tuple(
            QuarantineView(
                id=_id(entry),
                profile=entry.profile,
                path=entry.deaths[-1].path,
                size_bytes=entry.deaths[-1].size_bytes,
                reason=sentence(entry),
                deaths=tuple(death.cause for death in entry.deaths),
                left_s=round(entry.until - now, 3),
            )
            for entry in self._quarantined()
        )

    def _quarantined(self) -> list[Entry]:
        now = self._clock.now()
        return [entry for entry in self._record if entry.quarantined and entry.until > now]

    def _find(self, profile: str, payload: Payload) -> Entry | None:
        """Hashes only where something is held against a request of this model and size."""
        now = self._clock.now()
        if not poison.any_like(self._record, profile, payload.length, now):
            return None
        fingerprint = _fingerprint(profile, payload)
        return None if fingerprint is None else poison.find(self._record, fingerprint, now)


def sentence(entry: Entry) -> str:
    """Why a request is refused."""
    count, last = len(entry.deaths), entry.deaths[-1]
    times = "once" if count == 1 else "twice" if count == 2 else f"{count} times"  # noqa: PLR2004
    return (
        f"the engine of {entry.profile} died {times} while it worked on this request ({last.cause})"
    )


def _id(entry: Entry) -> str:
    return entry.fingerprint[:ID_LENGTH]


def _fingerprint(profile: str, payload: Payload) -> str | None:
    """Of the model and the body; None of a form, which is never held as a whole."""
    if not isinstance(payload, Whole):
        return None
    return hashlib.sha256(profile.encode() + b"\0" + payload.body).hexdigest()
