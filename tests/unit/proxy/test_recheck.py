"""What is asked of an engine's supervisor once the engine has broken off."""

from __future__ import annotations

import anyio

from tests.fakes.board import bench


async def test_it_is_given_a_moment_except_at_the_end_when_nobody_is_waited_for() -> None:
    async with bench() as made, made.board.lease("a", request_id="1") as lease:
        with anyio.CancelScope() as living:
            living.cancel()
            await made.board.recheck(lease)
        assert living.cancelled_caught, "it has waited for nothing"
        made.board.close("the daemon is stopping")
        with anyio.CancelScope() as ending:
            ending.cancel()
            assert await made.board.recheck(lease) is None
        assert not ending.cancelled_caught, "it has waited"
