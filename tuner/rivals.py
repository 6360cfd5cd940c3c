"""Another model of a pool in place of the one that runs: what is known of it, and if it pays.

Covers the value that the policy is told and the weighing of it. Which model is meant is said
by the pool's own rules over stored measurements (``tuner.pools``); when a switch may be made
at all is ``tuner.policy``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.types import Arm, Interval  # noqa: TC001 - a stored moment resolves its hints
from tuner.worth import switch_decision, told

if TYPE_CHECKING:
    from tuner.moment import Rules

__all__ = ["Rival", "weigh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """The model that a pool's rules name in place of the one that runs.

    Attributes:
        pool: The pool.
        arm: The model at its measured depth.
        gain: Mean of the logarithm of what the pool's objective counts, of the rival over the
            running arm; None where not a gain but a rule decides (perplexity, tags, residency).
        sd: Its standard deviation.
        counts: What the gain is in: tok/s or tok/J.
        tps: Stored tokens per second of the rival.
        now_tps: The same of the running arm.
        tokens_per_s: Tokens per second that requests by the pool's name are expected to ask
            for, idle times included; what is asked for by a model's own name earns nothing.
        held: Why the model that runs must stay for now, one clause, or None.
        reason: The sentence of the pool's rules.
        evidence: The members as they were compared.
    """

    pool: str
    arm: Arm
    gain: float | None
    sd: float
    counts: str
    tps: Interval
    now_tps: float
    tokens_per_s: float
    held: str | None
    reason: str
    evidence: tuple[str, ...] = ()


def weigh(rules: Rules, rival: Rival, *, horizon_s: float, cost_s: float) -> tuple[bool, str]:
    """Whether the rival is worth the switch, and the clause that says why.

    A gain must exceed, with probability ``sure``, ``least_gain`` and what earns the switch back
    in the tokens that are still asked of the pool. The same holds of tokens per joule: an
    engine that starts is taken to draw what it draws while it decodes. What a rule asks for
    has no price in time; it must cost at most ``least_gain`` of the time those tokens take.

    Args:
        rules: Of the policy.
        rival: The model.
        horizon_s: How long the present is expected to last.
        cost_s: Seconds that the switch costs.
    """
    tokens = rival.tokens_per_s * horizon_s
    if tokens <= 0:
        return False, f"nobody asks for {rival.pool} by its name"
    if rival.gain is None:
        share = cost_s * rival.now_tps / tokens
        says = f"the switch costs {share:.1%} of the time that its requests take"
        return share <= rules.least_gain, f"{says} (at most {rules.least_gain:.0%})"
    verdict = switch_decision(
        tps_now=rival.now_tps,
        tps_new=rival.now_tps * math.exp(rival.gain),
        sd_log=rival.sd,
        horizon_tokens=tokens,
        cost_s=cost_s,
        min_gain=rules.least_gain,
        p_req=rules.sure,
    )
    return verdict.switch, told(verdict, rival.gain, rival.counts)
