"""What of live evidence survives an engine start and a new calibration.

Acceptance is a property of the text and the head: it survives both. Step times are those of
one start of one engine on one card.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tuner.drift import Detector

if TYPE_CHECKING:
    from tuner.baseline import Baseline
    from tuner.live import Live
    from tuner.types import Arm

__all__ = ["recalibrated", "restarted"]


def restarted(live: Live) -> Live:
    """The state after an engine start: times are watched anew, what was learnt stays."""
    return replace(
        live,
        classes=tuple(
            replace(c, tallies=tuple(t.watched_anew(live.reference_s(t.arm)) for t in c.tallies))
            for c in live.classes
        ),
    )


def recalibrated(
    live: Live,
    baselines: tuple[Baseline, ...],
    step_s: tuple[tuple[Arm, float], ...],
    *,
    keep: float = 1.0,
) -> Live:
    """The state after a new calibration: old step times are void, acceptance need not be.

    Args:
        live: What was learnt under the old one.
        baselines: The new acceptance.
        step_s: The new seconds per step by arm.
        keep: Share of what was learnt of the acceptance that still counts: 1 where only times
            changed (a power cap), ``KEPT`` where the text may have (engine, model file).
    """
    return replace(
        live,
        baselines=baselines,
        step_s=step_s,
        common=live.common.fade(keep),
        pooled=live.pooled.reset(),
        classes=tuple(
            replace(
                c,
                offset=c.offset.fade(keep),
                positions=tuple(level.fade(keep) for level in c.positions),
                detector=Detector(),
                tallies=(),
            )
            for c in live.classes
        ),
    )
