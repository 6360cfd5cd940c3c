"""What the control API shows of live traffic, and of what the daemon would do by itself."""

from __future__ import annotations

from dataclasses import dataclass

from mtpd.engine_views import ArmView, IntervalView  # noqa: TC001  # decoders resolve it

__all__ = ["LiveArmView", "LiveClassView", "LiveNextView", "LiveProfileView", "LiveView"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArmView:
    """Requests of one class that one arm served; old ones count less.

    Attributes:
        arm: The arm.
        requests: How many, decayed.
        tokens_per_step: Tokens per decode step.
        decode_tps: Tokens per second of requests that were decoded alone; None without one.
        alphas: Conditional acceptance per draft position.
        unidentified: Why there are no ``alphas``, or null.
    """

    arm: ArmView
    requests: float
    tokens_per_step: float | None
    decode_tps: float | None
    alphas: tuple[IntervalView, ...]
    unidentified: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveClassView:
    """One class of requests.

    Attributes:
        name: E.g. ``long/code/greedy``: prompt, text, sampling, and whether it reasons.
        share: Of the present tokens.
        arms: What served it, in the order of appearance.
    """

    name: str
    share: float
    arms: tuple[LiveArmView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNextView:
    """What the daemon would do by itself.

    Attributes:
        act: switch, restart or measure; keep where it would leave all as it is.
        arm: The arm that this is about.
        says: The decision's sentence.
        waits_for: What stands in its way, or null.
    """

    act: str
    arm: ArmView
    says: str
    waits_for: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveProfileView:
    """Live traffic of one model.

    Attributes:
        profile: The model.
        requests: Requests that counted.
        excluded: Requests that did not, by reason.
        tokens_per_s: Tokens per second that are expected of it, idle times included.
        classes: What is known per class.
        calibration_id: The decision whose measurements it is compared with, or null.
        stale: Why these do not hold any more; empty while they do.
        moved: What has drifted lately, newest last.
        next: What would be done; null while it does not run.
    """

    profile: str
    requests: int
    excluded: dict[str, int]
    tokens_per_s: float
    classes: tuple[LiveClassView, ...]
    calibration_id: int | None
    stale: tuple[str, ...]
    moved: tuple[str, ...]
    next: LiveNextView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveView:
    """Live traffic of every model that had any.

    Attributes:
        mode: off, observe or idle.
        profiles: In the order of the configuration.
    """

    mode: str
    profiles: tuple[LiveProfileView, ...]
