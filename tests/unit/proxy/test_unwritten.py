"""A start that the daemon's own records did not take: refused once, and tried anew at once."""

from __future__ import annotations

import anyio
import pytest

from mtpd.proxy.outcomes import RejectedError
from tests.fakes.actors import Fails
from tests.fakes.board import bench


async def test_the_first_request_after_a_full_disk_was_freed_is_served() -> None:
    async with bench() as made:
        made.actor("a").script.append(Fails("store", "the disk is full", "failed"))
        with pytest.raises(RejectedError, match="the disk is full") as caught:
            async with made.board.lease("a", request_id="1"):
                pass
        assert (caught.value.status, caught.value.retry_after_s) == (503, 1)
        async with made.board.lease("a", request_id="2"):
            assert made.serving() == ["a@0"]


async def test_an_engine_that_died_while_the_disk_was_full_is_back_with_the_next_request() -> None:
    async with bench() as made:
        async with made.board.lease("a", request_id="1"):
            pass
        made.actor("a").die(Fails("store", "the disk is full", "failed"))
        await anyio.wait_all_tasks_blocked()
        async with made.board.lease("a", request_id="2"):
            assert made.serving() == ["a@0"]
