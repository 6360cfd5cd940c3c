"""What a line of an engine's log is evidence of, by the fact that it was read as; pure.

Says which lines a reader of the log may want to see together. What the facts add up to is
decided elsewhere (``evidence``, ``failures``, ``acceptance``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from mtpd.engine import facts

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["KEPT", "NOTES", "Note", "notes", "told"]

KEPT: Final = frozenset({"start", "residency", "speculation", "failure"})
"""What an engine prints once per start: worth more than the lines of its requests."""

_KINDS: Final[dict[str, tuple[type[facts.Fact], ...]]] = {
    "start": (
        facts.Verbosity,
        facts.ModelLoading,
        facts.ModelLoaded,
        facts.SlotsReady,
        facts.Listening,
    ),
    "residency": (
        facts.DeviceListed,
        facts.UsingDevice,
        facts.GpuInitFailed,
        facts.WeightsLoading,
        facts.LayersOffloaded,
        facts.Buffer,
        facts.RecurrentState,
        facts.RsSeq,
        facts.FusedOpMismatch,
        facts.FusedOpDisabled,
        facts.FitProjected,
        facts.FitOk,
        facts.FitShort,
        facts.FitContextReduced,
        facts.FitTrial,
        facts.FitLayers,
        facts.FitFailed,
        facts.Breakdown,
        facts.BreakdownTable,
    ),
    "speculation": (
        facts.MtpContext,
        facts.SpecImplementation,
        facts.SpecParameters,
        facts.NoRollback,
        facts.SyntheticAcceptance,
        facts.NoMtpLayers,
    ),
    "acceptance": (
        facts.DraftAcceptance,
        facts.AcceptancePerPosition,
        facts.DraftVerified,
        facts.SpecStatistics,
    ),
    "request": (
        facts.EvalTime,
        facts.Progress,
        facts.PromptReprocessed,
        facts.TaskCancelled,
        facts.SlotReleased,
    ),
    "failure": (
        facts.OutOfMemory,
        facts.Aborted,
        facts.LoadFailed,
        facts.BindFailed,
        facts.BadArgument,
        facts.LibraryMissing,
        facts.GpuHang,
        facts.DeviceLost,
        facts.GpuError,
    ),
    "end": (facts.CleaningUp, facts.SecondInterrupt),
    "unread": (facts.LogDialectUnknown,),
}
_WORD = re.compile(r"[A-Z][a-z0-9]*")


class Note(NamedTuple):
    """What a line was read as, and what that is evidence of."""

    fact: str
    about: str


def told(fact: facts.Fact) -> Note:
    """What a line with this fact is evidence of, e.g. ``("layers_offloaded", "residency")``."""
    return NOTES[type(fact)]


def notes(found: Sequence[tuple[int, facts.Fact]]) -> list[tuple[int, Note]]:
    """The same of several lines, each with its place among them."""
    return [(place, told(fact)) for place, fact in found]


NOTES: Final = {
    kind: Note("_".join(_WORD.findall(kind.__name__)).lower(), about)
    for about, kinds in _KINDS.items()
    for kind in kinds
}
"""Of every kind of fact."""
