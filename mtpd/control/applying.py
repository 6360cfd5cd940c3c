"""Puts a configuration that was read again into force, model by model.

Covers the order: nobody starts an engine while names, choices and limits change together;
then engines that run otherwise are drained and renewed. What is different was said by
``mtpd.config.diff`` before, and written down by ``mtpd.control.reload``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from mtpd.config.diff import revised

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from collections.abc import Set as AbstractSet

    from mtpd.config.diff import Changes
    from mtpd.config.live import LiveConfig
    from mtpd.config.model import Config
    from mtpd.control.choices import Choices
    from mtpd.engine.client import EngineClient
    from mtpd.proxy.outcomes import Renewal
    from mtpd.proxy.switch import Switchboard

__all__ = ["Applying"]


class Applying:
    """The only writer of the configuration in force.

    Args:
        live: What everybody reads.
        board: Starts and stops engines.
        choices: What was chosen for models and pools.
        restore: Takes up what the journal holds for models and pools as they are now.
        learn: Forecasts the memory of models that are new or others.
    """

    def __init__(
        self,
        *,
        live: LiveConfig,
        board: Switchboard[EngineClient],
        choices: Choices,
        restore: Callable[[AbstractSet[str]], Awaitable[None]],
        learn: Callable[[Iterable[str]], Awaitable[None]],
    ) -> None:
        self._live, self._board, self._choices = live, board, choices
        self._restore, self._learn = restore, learn

    async def apply(self, changes: Changes, config: Config) -> tuple[Renewal, ...]:
        """Put it into force and renew what runs otherwise; says what became of each engine.

        Requests that run end first. One who gives up waiting for them leaves the rest to
        the switchboard: what is in force stays in force.
        """
        async with self._board.settled():
            with anyio.CancelScope(shield=True):
                self._live.replace(revised(self._live.now, config))
                subjects = _subjects(changes, self._live.now)
                self._choices.forget(subjects)
                self._board.bound(self._live.server)
                for name in changes.removed:
                    self._board.forget(name, f"{name} was taken out of the configuration")
                for name in changes.changed:
                    self._board.mend(name)
                await self._learn((*changes.added, *changes.changed))
                await self._restore(subjects)
        return await self._board.renew(changes.reason)


def _subjects(changes: Changes, config: Config) -> frozenset[str]:
    """The models and pools whose choice may be another one."""
    models = {*changes.added, *changes.removed, *changes.changed, *changes.described}
    beside = (name for name, pool in config.pools.items() if models & set(pool.members))
    return frozenset((*models, *changes.pools, *beside))
