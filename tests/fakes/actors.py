"""A supervisor without processes: does what its script says, one start after the other."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio

from mtpd.types import Verdict
from mtpd.views import ArmView, EngineView, FailureView, ResidencyView

if TYPE_CHECKING:
    from mtpd.types import EngineKey, LaunchPlan

__all__ = ["Fails", "FakeActor", "Loads"]

SETTLED = {"ready", "stopped", "failed", "backoff", "wedged", "vram_unrecovered", "gpu_failed"}


@dataclass(frozen=True)
class Loads:
    """A start that becomes ready; ``gate`` keeps it loading until it is set."""

    gate: anyio.Event | None = None


@dataclass(frozen=True)
class Fails:
    """A start that ends in failed (gives up) or backoff (goes on trying), likewise."""

    failure: str = "config"
    reason: str = "the model file is truncated"
    state: str = "failed"
    gate: anyio.Event | None = None


class FakeActor:
    """Passes for an EngineActor.

    Attributes:
        script: Outcomes of the starts to come; an empty script loads.
        verdicts: Residency of every start of a depth; unknown for those not named.
        history: Every state with the arm, as "loading a@1".
        deaf: Whether a stop ends in wedged.
    """

    def __init__(self, key: EngineKey) -> None:
        self.key = key
        self.plan: LaunchPlan | None = None
        self.verdict = Verdict()
        self.script: deque[Loads | Fails] = deque()
        self.verdicts: dict[int, Verdict] = {}
        self.history: list[str] = []
        self.deaf = False
        self._inbox: deque[LaunchPlan | str] = deque()
        self._posted = anyio.Event()
        self._changed = anyio.Event()
        self.revision = 0
        self._over = False
        residency = ResidencyView(
            state="host", layers=None, spilled_bytes=None, reason="", evidence=()
        )
        self._view = EngineView(
            id="",
            device=key.device,
            profile=key.profile,
            state="stopped",
            arm=None,
            residency=residency,
            pid=None,
            endpoint=None,
            since="0",
            starts=0,
            failure=None,
            log_tail=(),
        )

    def view(self) -> EngineView:
        return self._view

    def start(self, plan: LaunchPlan) -> None:
        self._post(plan)

    def stop(self, reason: str) -> None:
        self._post(reason)

    async def settled(self) -> EngineView:
        while not self._over and (self._inbox or self._view.state not in SETTLED):
            await self.wait_change(self.revision)
        return self._view

    async def wait_change(self, revision: int) -> int:
        while self.revision <= revision:
            await self._changed.wait()
        return self.revision

    async def run(self) -> None:
        try:
            await self._obey()
        finally:
            self._over = True
            self._tell()

    async def _obey(self) -> None:
        loading = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            while True:
                await self._posted.wait()
                self._posted = anyio.Event()
                while self._inbox:
                    message = self._inbox[0]
                    loading.cancel()
                    if isinstance(message, str):
                        self._stop()
                    else:
                        self.plan, loading = message, anyio.CancelScope()
                        starts = self._view.starts + 1
                        self._view = replace(self._view, starts=starts, failure=None)
                        self._become("loading", engine_id=f"{self.key.profile}#{starts}")
                        tasks.start_soon(self._load, loading)
                    self._inbox.popleft()
                    self._tell()

    def _post(self, message: LaunchPlan | str) -> None:
        self._inbox.append(message)
        self._posted.set()

    # What happens to an engine by itself ---------------------------------------------

    def crash(self) -> None:
        """It died and is being started again later."""
        self._fail(Fails("crash", "the engine died", "backoff"))

    def die(self, outcome: Fails) -> None:
        """It died of something else."""
        self._fail(outcome)

    def end(self) -> None:
        """Its process has ended; whether it is started again is not said yet."""
        self._become("releasing")

    def recover(self) -> None:
        """The restart after a crash succeeded."""
        self._judge()
        self._view = replace(self._view, starts=self._view.starts + 1)
        self._become("ready", engine_id=f"{self.key.profile}#{self._view.starts}", failure=None)

    def rejudge(self, verdict: Verdict) -> None:
        """It serves, and its residency has become another."""
        self.verdict = verdict
        self._tell()

    def give_up(self, reason: str = "it died too often") -> None:
        """The restarts have come to an end."""
        self._fail(Fails("crash", reason, "failed"))

    def hang(self) -> None:
        """It is being killed because it hangs."""
        self._become("stopping")

    async def _load(self, scope: anyio.CancelScope) -> None:
        with scope:
            outcome = self.script.popleft() if self.script else Loads()
            await anyio.lowlevel.checkpoint()
            if outcome.gate is not None:
                await outcome.gate.wait()
            if isinstance(outcome, Fails):
                self._fail(outcome)
                return
            self._judge()
            self._become("ready")

    def _judge(self) -> None:
        assert self.plan is not None
        self.verdict = self.verdicts.get(self.plan.arm.depth, Verdict())

    def _stop(self) -> None:
        if self._view.state in {"stopped", "failed", "vram_unrecovered", "gpu_failed"}:
            return
        self._become("stopping")
        self._become("wedged" if self.deaf else "stopped")

    def _fail(self, outcome: Fails) -> None:
        failure = FailureView(
            failure=outcome.failure,
            reason=outcome.reason,
            hint=None,
            exit_code=1,
            retry_in_s=None,
        )
        self._become(outcome.state, failure=failure)

    def _become(
        self,
        state: str,
        *,
        engine_id: str | None = None,
        failure: FailureView | None = None,
    ) -> None:
        assert self.plan is not None
        arm = self.plan.arm
        shown = ArmView(
            profile=arm.profile, drafter=arm.drafter.value, depth=arm.depth, p_min=arm.p_min
        )
        self.history.append(f"{state} {arm}")
        self._view = replace(
            self._view,
            state=state,
            arm=shown,
            id=self._view.id if engine_id is None else engine_id,
            since=str(len(self.history)),
            failure=failure,
        )
        self._tell()

    def _tell(self) -> None:
        self.revision += 1
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
