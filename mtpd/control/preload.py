"""Loads the models that the configuration names, once the daemon serves.

One after the other, in the order that they are named. One that cannot be loaded is told
and left out; clients come first, so a model whose place is in use by then is left out too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from mtpd.errors import MtpdError
from tuner.types import Act, Decision

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mtpd.config.live import Configuration
    from mtpd.control.choices import Choices
    from mtpd.control.recorder import StoreRecorder
    from mtpd.store.journal import Journal

__all__ = ["Preloader"]

log = structlog.get_logger()


class Preloader:
    """Loads what ``[server] preload`` names.

    Args:
        config: Which models.
        choices: At which depth, and what a pool stands for.
        bring_up: Has a profile's engine ready, for a reason; raises MtpdError.
        recorder: Journals the decisions.
        journal: Takes what became of them.
    """

    def __init__(
        self,
        *,
        config: Configuration,
        choices: Choices,
        bring_up: Callable[[str, str], Awaitable[object]],
        recorder: StoreRecorder,
        journal: Journal,
    ) -> None:
        self._config, self._choices, self._bring_up = config, choices, bring_up
        self._recorder, self._journal = recorder, journal

    async def run(self) -> None:
        """Load them; returns when each was tried."""
        for name in self._config.server.preload:
            profile = self._profile(name)
            if profile is not None:  # a reload may have taken it away
                await self._load(name, profile)

    def _profile(self, name: str) -> str | None:
        pool = self._config.pools.get(name)
        if pool is not None:
            return self._choices.of_pool(pool).arm.profile
        profile = self._config.profile_for(name)
        return None if profile is None else profile.name

    async def _load(self, name: str, profile: str) -> None:
        reason = f"{name} is to be loaded when the daemon starts (server.preload)"
        arm = self._choices.arm_for(profile)
        decision = Decision(act=Act.LOAD, subject=profile, arm=arm, reason=reason)
        outcome = "loaded"
        try:
            made = await self._recorder.decide(decision)
            try:
                await self._bring_up(profile, reason)
            except MtpdError as error:
                outcome = f"not loaded: {error}"
                log.warning("preload.failed", model=name, reason=str(error), hint=error.hint)
            await self._journal.outcome(made.id, outcome)
        except MtpdError as error:  # the journal cannot be written: the next may be
            log.warning("preload.failed", model=name, reason=str(error), hint=error.hint)
