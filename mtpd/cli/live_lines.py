"""Live traffic on the status screen: what comes in, what is accepted, what would be done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mtpd.cli.cells import ALPHA, number, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.live_views import LiveArmView, LiveClassView, LiveProfileView

__all__ = ["live_lines"]

CLASSES: Final = 4
"""Classes that are shown, those with most tokens first; ``/mtpd/v1/live`` has all."""


def live_lines(live: LiveProfileView) -> Iterator[tuple[str, str]]:
    """Names and values of one model's traffic; none where there is nothing to tell."""
    if not _is_worth_a_line(live):
        return
    yield "live", f"{live.profile}: {_counts(live)}"
    by_share = sorted(live.classes, key=lambda one: -one.share)
    for one in by_share[:CLASSES]:
        for arm in one.arms[-2:]:
            yield "", _arm(one, arm)
    if len(by_share) > CLASSES:
        yield "", f"and {len(by_share) - CLASSES} classes with fewer tokens"
    for moved in live.moved[-1:]:
        yield "moved", moved
    if live.stale:
        yield "stale", "; ".join(live.stale)
    if live.next is not None:
        yield "next", live.next.says


def _is_worth_a_line(live: LiveProfileView) -> bool:
    quiet = live.next is None or live.next.act == "keep"
    return bool(live.requests or live.excluded or live.moved or live.stale) or not quiet


def _counts(live: LiveProfileView) -> str:
    requests = "request" if live.requests == 1 else "requests"
    asked = f"{number(live.tokens_per_s, 1)} tok/s asked for on average, idle times included"
    text = f"{live.requests} {requests}, {asked}"
    left_out = ", ".join(f"{count} {why}" for why, count in live.excluded.items())
    return f"{text}; left out: {left_out}" if left_out else text


def _arm(one: LiveClassView, arm: LiveArmView) -> str:
    text = f"{one.name} {percent(one.share, 0)}: depth {arm.arm.depth}"
    text += f" {number(arm.decode_tps, 1)} tok/s, {number(arm.tokens_per_step, 2)} tok/step"
    for position, alpha in enumerate(arm.alphas, start=1):
        within = f"{percent(alpha.low, 0)} to {percent(alpha.high, 0)}"
        text += f", {ALPHA}{position} {percent(alpha.mid, 0)} ({within})"
    return text if arm.unidentified is None else f"{text}; {ALPHA} unknown: {arm.unidentified}"
