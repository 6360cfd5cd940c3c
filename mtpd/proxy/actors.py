"""What the switchboard needs of an engine's supervisor; ``EngineActor`` is the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mtpd.types import LaunchPlan, Verdict
    from mtpd.views import EngineView

__all__ = ["AT_REST", "READY", "WEDGED", "Actor"]

READY, WEDGED = "ready", "wedged"
AT_REST = frozenset({"stopped", "failed", "vram_unrecovered", "gpu_failed"})
"""States without a process in which none is about to be started."""


class Actor(Protocol):
    """Owns the processes of one engine key, one after the other."""

    @property
    def plan(self) -> LaunchPlan | None:
        """What runs, is about to, or last failed."""

    @property
    def verdict(self) -> Verdict:
        """Residency of the present engine."""

    @property
    def revision(self) -> int:
        """Grows with every change of the state."""

    def view(self) -> EngineView:
        """The engine as it is now; ``id`` changes with every start."""

    def start(self, plan: LaunchPlan) -> None:
        """Ask for an engine; returns at once."""

    def stop(self, reason: str) -> None:
        """Ask for the end of the engine; returns at once."""

    async def settled(self) -> EngineView:
        """Wait until all that was asked for so far has had its outcome, if only for now.

        That is ready, stopped, failed, wedged, backoff, vram_unrecovered or gpu_failed; also
        once ``run`` is over.
        """

    async def wait_change(self, revision: int) -> int:
        """Wait until the revision is above the given one, and return it."""

    async def run(self) -> None:
        """Own the engine until cancelled; stops it on the way out."""
