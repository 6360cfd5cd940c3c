"""What binds a policy whatever model serves: restarts, dwell time and the way back.

The policy keeps a state per model, on a clock of its own that stands still while the model
does not serve. Covers what one state says to another.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tuner.moment import DAY_S

if TYPE_CHECKING:
    from tuner.moment import PolicyState

__all__ = ["handed_over", "left_behind", "recent_restarts"]


def recent_restarts(state: PolicyState, at_s: float) -> int:
    """Restarts of the last day that a model's policy asked for, also if it has not served since.

    Args:
        state: Of the model.
        at_s: The caller's time.
    """
    now_s = state.clock_s + _unseen_s(state, at_s)
    return sum(now_s - at < DAY_S for at in state.restarts)


def handed_over(leaving: PolicyState, own: PolicyState, at_s: float) -> PolicyState:
    """The state of a model that was switched to, with what binds the one that was left.

    Dwell time, restarts of the day and the way back are of the device, not of one model; each
    model's policy has its own clock, and one that does not serve stands still.

    Args:
        leaving: Of the model that was left, after the switch was decided.
        own: Of the model that is switched to, as it was when that last served.
        at_s: The caller's time.
    """
    shift = leaving.clock_s - own.clock_s - _unseen_s(own, at_s)

    def moved(at: float | None) -> float | None:
        return None if at is None else at + shift

    kept = (at + shift for at in own.restarts)
    restarts = sorted((*leaving.restarts, *kept))
    return replace(
        own,
        clock_s=leaving.clock_s,
        seen_s=at_s,
        restarts=tuple(at for at in restarts if leaving.clock_s - at < DAY_S),
        previous=leaving.previous,
        returns=leaving.returns,
        measured_s=moved(own.measured_s),
        changed_s=moved(own.changed_s),
    )


def left_behind(leaving: PolicyState) -> PolicyState:
    """The state of the model that was left: what binds the device has gone with the switch."""
    return replace(leaving, restarts=(), previous=None, returns=0)


def _unseen_s(state: PolicyState, at_s: float) -> float:
    """Seconds since the policy last looked at a model; a clock that was set back stands still."""
    return 0.0 if state.seen_s is None else max(at_s - state.seen_s, 0.0)
