"""Writes down which requests are refused because engines died of them, and which no longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.errors import NotFoundError
from mtpd.proxy.poison import Rules
from mtpd.proxy.quarantine import sentence
from tuner.types import Act, Decision

if TYPE_CHECKING:
    from mtpd.config.live import Configuration
    from mtpd.control.recorder import StoreRecorder
    from mtpd.proxy.poison import Entry
    from mtpd.proxy.quarantine import Quarantine
    from mtpd.views import DecisionView, QuarantineView

__all__ = ["quarantined", "release", "rules"]


def rules(config: Configuration) -> Rules:
    """When a request is quarantined, as configured now."""
    return Rules(after=config.server.poison_after, hold_s=config.server.poison_hold_s)


async def quarantined(recorder: StoreRecorder, entry: Entry) -> DecisionView:
    """Journal that a request is refused from now on."""
    last = entry.deaths[-1]
    request = f"sha256 {entry.fingerprint}, {last.size_bytes} bytes to {last.path}"
    deaths = (f"request {d.request_id} on {d.arm}: {d.cause}" for d in entry.deaths)
    return await recorder.decide(
        Decision(
            act=Act.QUARANTINE,
            subject=entry.profile,
            arm=last.arm,
            reason=f"refused from now on: {sentence(entry)}",
            evidence=(request, *deaths),
        )
    )


async def release(recorder: StoreRecorder, quarantine: Quarantine, which: str) -> QuarantineView:
    """Let a request try again, and journal it.

    Raises:
        NotFoundError: No request with this id is quarantined.
    """
    view = next((one for one in quarantine.views() if one.id == which), None)
    entry = quarantine.release(which)
    if view is None or entry is None:
        msg = f"no request {which!r} is quarantined"
        raise NotFoundError(msg, hint="mtpctl quarantine list shows them")
    await recorder.decide(
        Decision(
            act=Act.RELEASE,
            subject=entry.profile,
            arm=entry.deaths[-1].arm,
            reason=f"an operator lets a request try again: {view.reason}",
            evidence=(f"sha256 {entry.fingerprint}",),
        )
    )
    return view
