"""The device as a calibration sees it: held, started, stopped."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mtpd.calibrate import Started
from mtpd.errors import GateClosedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from mtpd.engine.client import EngineClient
    from mtpd.engine.heard import RequestFacts
    from mtpd.proxy.hold import Hold
    from mtpd.proxy.switch import Switchboard
    from tuner.types import Arm

__all__ = ["HeldDevice", "SwitchboardDevice"]


class HeldDevice:
    """Starts and stops arms while requests wait."""

    def __init__(self, hold: Hold[EngineClient], heard: RequestFacts) -> None:
        self._hold = hold
        self._heard = heard

    async def start(self, arm: Arm) -> Started:
        """Start the arm and wait until it is ready; raises EngineError."""
        view = await self._hold.start(arm)
        running = self._hold.running
        return Started(
            client=self._hold.client(),
            verdict=running.actor.verdict,
            start_id=view.id,
            fingerprint=running.plan.fingerprint,
            heard=self._heard,
        )

    async def stop(self) -> None:
        """Stop what runs; nothing serves afterwards until somebody asks."""
        await self._hold.stop()


class SwitchboardDevice:
    """Gives calibrations the device, and says what serves.

    Args:
        switchboard: Owns the engines.
        heard: What engines say of single requests.
        refusal: Why nothing can be measured now, or None.
    """

    def __init__(
        self,
        *,
        switchboard: Switchboard[EngineClient],
        heard: RequestFacts,
        refusal: Callable[[], Awaitable[str | None]],
    ) -> None:
        self._switchboard = switchboard
        self._heard = heard
        self._refusal = refusal

    @asynccontextmanager
    async def hold(self, reason: str) -> AsyncIterator[HeldDevice]:
        """Drain, then have the device alone while the block runs.

        Raises:
            GateClosedError: Nothing can be measured; what serves goes on.
        """
        if (why := await self._refusal()) is not None:
            raise GateClosedError(why)
        async with self._switchboard.hold(reason=reason) as hold:
            yield HeldDevice(hold, self._heard)

    def serving(self) -> Arm | None:
        """The arm that is ready now, or None; of several, the one that was used last."""
        return self._switchboard.serving()
