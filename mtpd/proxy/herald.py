"""Waits for an engine on behalf of a request, and tells its client meanwhile, if it is to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from mtpd.errors import MtpdError
from mtpd.proxy.loading import Outlook, Words
from mtpd.proxy.outlet import ClientGoneError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager, AsyncExitStack

    from mtpd.clock import Clock
    from mtpd.proxy.carry import Board
    from mtpd.proxy.engines import Lease
    from mtpd.proxy.relay import Exchange

__all__ = ["TICK_S", "Herald"]

TICK_S = 1.0
"""Between two words, and before the first: a short wait is answered as if there were none."""


class Herald:
    """Of one request.

    Args:
        board: Knows what the engines do.
        clock: Measures the wait.
        words: What to say.
        profile: The model that is waited for.
        request_id: The request that waits.
        tick_s: See ``TICK_S``.
    """

    def __init__(
        self,
        *,
        board: Board,
        clock: Clock,
        words: Words,
        profile: str,
        request_id: str,
        tick_s: float,
    ) -> None:
        self._board, self._clock, self._words = board, clock, words
        self._profile, self._request_id, self._tick_s = profile, request_id, tick_s
        self._began = clock.now()

    async def lease(
        self,
        stack: AsyncExitStack,
        exchange: Exchange,
        leased: AbstractAsyncContextManager[Lease],
    ) -> Lease:
        """Enter what ``Board.lease`` gave; the engine may be used until the stack unwinds.

        Raises:
            RejectedError: There is none.
            ClientGoneError: The client left while it was told.
        """
        outcome: Lease | Exception = ClientGoneError()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._speak, exchange, tasks.cancel_scope)
            try:
                outcome = await stack.enter_async_context(leased)
            except MtpdError as error:  # a task group would wrap it
                outcome = error
            tasks.cancel_scope.cancel()
        if isinstance(outcome, Exception):
            raise outcome
        if exchange.response is not None and (last := self._words.done(self._waited_s())):
            await exchange.tell(last)
        return outcome

    async def _speak(self, exchange: Exchange, waiting: anyio.CancelScope) -> None:
        try:
            while True:
                await anyio.sleep(self._tick_s)
                if words := self._words.more(self._outlook()):
                    await exchange.tell(words)
        except ClientGoneError:
            waiting.cancel()

    def _outlook(self) -> Outlook:
        engines = self._board.engines()
        view = next((one for one in engines if one.profile == self._profile), None)
        return Outlook(
            state="stopped" if view is None else view.state,
            depth=None if view is None or view.arm is None else view.arm.depth,
            ahead=self._board.ahead(self._request_id),
            waited_s=self._waited_s(),
        )

    def _waited_s(self) -> float:
        return self._clock.now() - self._began
