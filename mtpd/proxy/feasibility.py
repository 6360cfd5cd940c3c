"""Which arms are known to stay on the device, and which are known not to.

Covers remembering, per fingerprint and arm, what the last start under it showed, and
which arm to take instead of one that does not fit. What was found in earlier lives of the
daemon comes from the ledger (``mtpd.control.residency``). An arm is tried again once its
fingerprint has changed; an operator may force it before, and what that start shows counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.errors import EngineError
from mtpd.types import FailureClass, Verdict
from tuner.types import Arm, Evicted, Host, Resident, Spilled

if TYPE_CHECKING:
    from mtpd.types import LaunchPlan

__all__ = ["Feasibility", "MisfitError", "degraded"]

_HINT = (
    'fewer slots, a smaller depth or context, or offload = "accept" in its profile; '
    "mtpctl switch --force serves it all the same"
)


class MisfitError(EngineError):
    """An arm does not stay on the device.

    Attributes:
        plan: How it was, or would have been, started.
        verdict: What a start of it showed, now or earlier.
    """

    def __init__(self, plan: LaunchPlan, verdict: Verdict, *, known: bool = False) -> None:
        since = ", as an earlier start showed" if known else ""
        lines = "".join(f"; {one.says}: {one.line.strip()}" for one in verdict.evidence[:1])
        message = f"{plan.arm} does not fit: {verdict.reason}{since}{lines}"
        super().__init__(message, failure=FailureClass.OOM_VRAM, hint=_HINT)
        self.plan, self.verdict = plan, verdict


def degraded(verdict: Verdict) -> bool:
    """Whether a part of the model is not where it should be; unknown is not known to be."""
    return isinstance(verdict.residency, Evicted | Spilled)


@dataclass(frozen=True, slots=True)
class _Key:
    fingerprint: str
    arm: Arm


class Feasibility:
    """Remembers verdicts; the newest start of an arm under a fingerprint counts."""

    def __init__(self) -> None:
        self._verdicts: dict[_Key, Verdict] = {}
        self._doubtful: set[Arm] = set()

    def note(self, fingerprint: str, arm: Arm, verdict: Verdict) -> None:
        """Remember what a start showed; an unknown residency shows nothing."""
        if degraded(verdict) or isinstance(verdict.residency, Resident | Host):
            self._verdicts[_Key(fingerprint, arm)] = verdict
        if degraded(verdict):
            self._doubtful.add(arm)

    def doubtful(self, arm: Arm) -> bool:
        """Whether any start of an arm, under whatever fingerprint, did not fit."""
        return arm in self._doubtful

    def misfit(self, fingerprint: str, arm: Arm) -> Verdict | None:
        """What showed that an arm does not fit, or None while nothing does."""
        verdict = self._verdicts.get(_Key(fingerprint, arm))
        return verdict if verdict is not None and degraded(verdict) else None

    def check(self, plan: LaunchPlan) -> None:
        """Refuse a plan that is known not to fit.

        Raises:
            MisfitError: It does not, and its profile does not accept that.
        """
        verdict = self.misfit(plan.fingerprint, plan.arm)
        if verdict is not None and not plan.accept_offload:
            raise MisfitError(plan, verdict, known=True)

    def instead(self, fingerprint: str, arm: Arm) -> Arm | None:
        """The arm to take in place of one that does not fit; None if there is none left.

        The deepest shallower one that a start has shown to fit, else depth 0, which needs
        the least: going down one depth at a time would cost a load each while requests wait.
        """
        if arm.depth == 0:
            return None
        shallower = [
            key.arm
            for key, verdict in self._verdicts.items()
            if key.fingerprint == fingerprint
            and key.arm.profile == arm.profile
            and key.arm.depth < arm.depth
            and not degraded(verdict)
        ]
        plain = Arm(profile=arm.profile)
        if shallower:
            return max(shallower, key=lambda one: one.depth)
        return None if self.misfit(fingerprint, plain) else plain
