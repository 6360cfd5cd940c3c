"""Live traffic as the API shows it. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mtpd.live_views import LiveArmView, LiveClassView, LiveNextView, LiveProfileView
from mtpd.views import ArmView, IntervalView
from tuner.types import Act, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.control.remembered import Remembered
    from tuner.live import ClassLive, Live
    from tuner.moment import Intent
    from tuner.tally import Tally

__all__ = ["next_view", "profile_view"]


def profile_view(
    name: str,
    state: Remembered,
    *,
    calibration_id: int | None,
    stale: Sequence[str],
    moved: Sequence[str],
    intent: Intent | None,
) -> LiveProfileView:
    """One model; see the view for the arguments."""
    live = state.live
    total = math.fsum(live.share(known) for known in live.classes)
    return LiveProfileView(
        profile=name,
        requests=live.requests,
        excluded={why.value: count for why, count in live.excluded},
        tokens_per_s=round(state.demand.tokens_per_s, 3),
        classes=tuple(_class(live, known, total) for known in live.classes),
        calibration_id=calibration_id,
        stale=tuple(stale),
        moved=tuple(moved),
        next=None if intent is None else next_view(intent),
    )


def next_view(intent: Intent) -> LiveNextView | None:
    """What would be done, and what it waits for."""
    decision, wish = intent.decision, intent.wish
    arm = decision.arm if wish is None else wish.arm
    if arm is None:
        return None
    act = Act.KEEP.value
    if wish is not None:
        restart = wish.act is Act.SWITCH and wish.arm == decision.previous
        act = "restart" if restart else wish.act.value
    return LiveNextView(
        act=act, arm=ArmView.of(arm), says=decision.reason, waits_for=intent.waits_for
    )


def _class(live: Live, known: ClassLive, total: float) -> LiveClassView:
    return LiveClassView(
        name=str(known.klass),
        share=round(live.share(known) / total, 4) if total else 0.0,
        arms=tuple(_arm(live, known, tally) for tally in known.tallies),
    )


def _arm(live: Live, known: ClassLive, tally: Tally) -> LiveArmView:
    base = live.baseline(known.klass)
    prior = [base.alpha(place) for place in range(tally.arm.depth)]
    alphas = tally.acceptance(prior, base.steps)
    each, pace = tally.tokens_per_step, tally.mean_log_step
    decode_tps = None
    if not isinstance(each, Unknown) and not isinstance(pace, Unknown):
        decode_tps = round(each / math.exp(pace), 3)
    return LiveArmView(
        arm=ArmView.of(tally.arm),
        requests=round(tally.requests, 2),
        tokens_per_step=None if isinstance(each, Unknown) else round(each, 4),
        decode_tps=decode_tps,
        alphas=() if isinstance(alphas, Unknown) else tuple(map(IntervalView.of, alphas)),
        unidentified=alphas.reason if tally.arm.depth and isinstance(alphas, Unknown) else None,
    )
