"""Which arms are known to stay on the device, and which are known not to.

Covers remembering, per fingerprint and arm, what the last start under it showed, and
which arm to take instead of one that does not fit. What was found in earlier lives of the
daemon comes from the ledger (``mtpd.control.residency``). An arm is tried again once its
fingerprint has changed, or once the card has more room than that start found: memory that
a browser held then must not rule the arm out for ever. An operator may force it before, and
what that start shows counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mtpd.engine.residency import out_of_memory
from mtpd.errors import EngineError
from mtpd.types import FailureClass, Verdict
from mtpd.units import MIB
from tuner.types import Arm, Evicted, Host, Resident, Spilled

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.types import LaunchPlan
    from mtpd.views import EngineView

__all__ = ["Feasibility", "MisfitError", "degraded"]

_HINT = (
    'fewer slots, a smaller depth or context, or offload = "accept" in its profile; '
    "mtpctl switch --force serves it all the same"
)


MORE_BYTES = 128 * MIB
"""So much more room than at the last failure is worth another load: above what a desktop's
own use of the card moves by, below what one browser holds."""


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
    """Remembers verdicts; the newest start of an arm under a fingerprint counts.

    Args:
        room: Device memory that a start of a profile would find once all that may go for it
            has gone, or None where that is unknown.
        free: The same beside all that runs now.
    """

    def __init__(
        self,
        room: Callable[[str], int | None] = lambda _profile: None,
        free: Callable[[str], int | None] = lambda _profile: None,
    ) -> None:
        self._room, self._free = room, free
        self._verdicts: dict[_Key, Verdict] = {}
        self._doubtful: set[Arm] = set()

    def note(self, fingerprint: str, arm: Arm, verdict: Verdict) -> None:
        """Remember what a start showed; an unknown residency shows nothing."""
        known = self._verdicts.get(_Key(fingerprint, arm))
        if known is not None and degraded(known) and degraded(verdict):
            verdict = _with_most_room(verdict, known)
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
        if verdict is None or not degraded(verdict) or self._has_more_room(arm.profile, verdict):
            return None
        return verdict

    def ran_out(self, plan: LaunchPlan, view: EngineView) -> Verdict | None:
        """The verdict on an engine that ended for want of device memory; None on any other.

        It is gone, so what is free now is what there was for it. Where that is less than was
        forecast for it, more had been free when it was admitted, or it was started alone on a card
        that is smaller: nobody has to hold the rest.
        """
        failure = view.failure
        if failure is None or failure.failure != FailureClass.OOM_VRAM:
            return None
        had, needs = self._free(plan.key.profile), plan.memory_bytes
        reason = failure.reason
        if had is not None and needs is not None and had < needs:
            reason += (
                f"; at most {needs // MIB} MiB were forecast for it, and {had // MIB} MiB are free"
                " now that it has ended (mtpctl gpu shows what others hold)"
            )
        return out_of_memory(reason, room_bytes=had)

    def short_of(self, fingerprint: str, arm: Arm) -> int | None:
        """The most room in which an arm is known not to fit; None where nothing is known."""
        verdict = self._verdicts.get(_Key(fingerprint, arm))
        return None if verdict is None or not degraded(verdict) else verdict.room_bytes

    def _has_more_room(self, profile: str, verdict: Verdict) -> bool:
        """Whether the card has clearly more room than at a start; not if either is unknown."""
        had, has = verdict.room_bytes, self._room(profile)
        return had is not None and has is not None and has - had >= MORE_BYTES

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


def _with_most_room(verdict: Verdict, known: Verdict) -> Verdict:
    """A verdict with the most room in which its arm is known not to fit.

    So every load that is tried anew needs more room than the one before, and their number
    is bounded however other programs come and go.
    """
    if verdict.room_bytes is None or known.room_bytes is None:
        return verdict
    return replace(verdict, room_bytes=max(verdict.room_bytes, known.room_bytes))
