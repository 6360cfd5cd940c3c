"""Whether a predicted gain is worth the switch that it costs.

Covers one arm against the one that runs, whatever the gain is counted in; when a switch may be
made at all is ``tuner.policy``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tuner.special import normal_cdf

__all__ = ["LEAST_GAIN", "SURE", "SwitchVerdict", "switch_decision", "told"]

LEAST_GAIN = 0.05
"""Relative gain below which a switch is never worth it."""

SURE = 0.95
"""Posterior probability that the gain exceeds what is required."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchVerdict:
    """What a switch would bring.

    Attributes:
        gain_s: Seconds saved over the horizon, the cost not deducted.
        p: Probability that the gain exceeds ``x_req``.
        x_req: Gain in log tokens per second that is required; None if even an infinite
            speed could not earn the cost back within the horizon.
        switch: Whether to switch.
    """

    gain_s: float
    p: float
    x_req: float | None
    switch: bool


def switch_decision(
    *,
    tps_now: float,
    tps_new: float,
    sd_log: float,
    horizon_tokens: float,
    cost_s: float,
    min_gain: float = LEAST_GAIN,
    p_req: float = SURE,
) -> SwitchVerdict:
    """Weigh a predicted gain against a measured switch cost.

    Args:
        tps_now: Tokens per second of the running arm on the current traffic.
        tps_new: Predicted tokens per second of the other arm.
        sd_log: Standard deviation of log(tps_new / tps_now).
        horizon_tokens: Tokens expected before the next chance to decide; 0 if none are.
        cost_s: Seconds that the switch costs, lost prompt caches included.
        min_gain: Least relative gain.
        p_req: Required probability.
    """
    gain_s = horizon_tokens * (1 / tps_now - 1 / tps_new)
    if cost_s * tps_now >= horizon_tokens:
        return SwitchVerdict(gain_s=gain_s, p=0.0, x_req=None, switch=False)
    share = cost_s * tps_now / horizon_tokens
    required = max(-math.log1p(-share), math.log1p(min_gain))
    margin = math.log(tps_new / tps_now) - required
    p = normal_cdf(margin / sd_log) if sd_log > 0 else float(margin > 0)
    return SwitchVerdict(gain_s=gain_s, p=p, x_req=required, switch=p >= p_req)


def told(verdict: SwitchVerdict, gain: float, counts: str = "") -> str:
    """Gain, probability and what was required, as every decision must say.

    Args:
        verdict: On the gain.
        gain: In the logarithm.
        counts: What it is a gain in, "" for tokens per second.
    """
    said = f"gain {math.expm1(gain):+.1%}" + (f" in {counts}" if counts else "")
    if verdict.x_req is None:
        return f"{said}, but no gain earns the switch back in time"
    required = math.expm1(verdict.x_req)
    return f"{said}; {required:.1%} is required, and the chance of that is {verdict.p:.0%}"
