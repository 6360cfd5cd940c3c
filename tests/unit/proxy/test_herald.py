from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from mtpd.config.model import LoadingState
from mtpd.proxy.herald import Herald
from mtpd.proxy.loading import Words
from mtpd.proxy.outlet import ClientGoneError
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Idle:
    """A board on which nothing runs."""

    def engines(self) -> tuple[()]:
        return ()

    def ahead(self, _request_id: str) -> int:
        return 0


class Gone:
    """An exchange whose client takes nothing any more."""

    response = None

    async def tell(self, _words: bytes) -> None:
        raise ClientGoneError


async def test_who_takes_no_word_any_more_does_not_wait_on() -> None:
    left = anyio.Event()

    @asynccontextmanager
    async def never() -> AsyncIterator[None]:
        try:
            await anyio.sleep_forever()
            yield
        finally:
            left.set()

    board: Any = Idle()
    exchange: Any = Gone()
    leased: Any = never()
    herald = Herald(
        board=board,
        clock=FakeClock(),
        words=Words(LoadingState.COMMENTS, "tiny"),
        profile="a",
        request_id="r",
        tick_s=0.01,
    )
    with anyio.fail_after(10):
        async with AsyncExitStack() as stack:
            with pytest.raises(ClientGoneError):
                await herald.lease(stack, exchange, leased)
    assert left.is_set()
