from __future__ import annotations

import math

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.config.model import EngineTimeouts, ServerTimeouts
from mtpd.config.serving import bound
from mtpd.proxy.outcomes import SlowEngineError
from mtpd.proxy.patience import Patience, is_silence

PING = b":\n\n"


async def gives(data: bytes) -> bytes:
    return data


async def never() -> bytes:
    await anyio.sleep_forever()
    return b""


async def test_without_limits_an_engine_is_waited_for() -> None:
    patience = Patience(EngineTimeouts())
    with anyio.move_on_after(0.05) as scope:
        await patience.wait(never())
    assert scope.cancelled_caught


@pytest.mark.parametrize(
    ("timeouts", "before", "why"),
    [
        ({"first_byte_s": 0.01}, (), "did not answer within 0.01 s (first_byte_s)"),
        ({"first_byte_s": 0.01}, (PING,), "did not answer within 0.01 s (first_byte_s)"),
        ({"idle_s": 0.01}, (b"data: x\n\n",), "nothing more of its answer for 0.01 s (idle_s)"),
        ({"idle_s": 0.01}, (b"x", PING), "nothing more of its answer for 0.01 s (idle_s)"),
        ({"total_s": 0.01}, (b"x",), "did not end its answer within 0.01 s (total_s)"),
        ({"first_byte_s": 60, "total_s": 0.01}, (), "within 0.01 s (total_s)"),
    ],
)
async def test_each_limit_is_told_by_its_name(
    timeouts: dict[str, float], before: tuple[bytes, ...], why: str
) -> None:
    patience = Patience(EngineTimeouts(**timeouts))
    for data in before:
        assert await patience.chunk(gives(data)) == data
    with anyio.fail_after(10), pytest.raises(SlowEngineError) as told:
        await patience.chunk(never())
    assert why in str(told.value)


async def test_an_answer_that_has_begun_has_met_its_first_limit() -> None:
    patience = Patience(EngineTimeouts(first_byte_s=0.01))
    await patience.chunk(gives(b"x"))
    with anyio.move_on_after(0.1) as scope:
        await patience.chunk(never())
    assert scope.cancelled_caught


async def test_the_time_in_which_a_client_reads_is_not_the_engines() -> None:
    patience = Patience(EngineTimeouts(idle_s=0.2))
    assert await patience.chunk(gives(b"x")) == b"x"
    await anyio.sleep(0.4)  # the client takes what came
    assert await patience.chunk(gives(b"y")) == b"y"


@pytest.mark.parametrize(
    ("chunk", "silent"),
    [
        (b": ping\n\n", True),
        (b":\r\n\r\n:\r\n\r\n", True),
        (b": ping\n\ndata: x\n\n", False),
        (b"data: x\n\n", False),
        (b"\n", False),
        (b"", False),
    ],
)
def test_comments_are_silence(chunk: bytes, silent: bool) -> None:  # noqa: FBT001
    assert is_silence(chunk) is silent


@given(st.binary(max_size=40))
def test_any_bytes_are_silence_or_not(chunk: bytes) -> None:
    assert is_silence(chunk) in {True, False}
    assert not is_silence(b"data: " + chunk)


times = st.none() | st.floats(0, 1e5)


@given(st.builds(EngineTimeouts, connect_s=times, first_byte_s=times, idle_s=times, total_s=times))
def test_what_a_model_leaves_out_follows_the_server(own: EngineTimeouts) -> None:
    server = ServerTimeouts(connect_s=1, first_byte_s=2, idle_s=3, total_s=4)
    found = server.for_engine(own)
    for name in ("connect_s", "first_byte_s", "idle_s", "total_s"):
        mine = getattr(own, name)
        assert getattr(found, name) == (getattr(server, name) if mine is None else mine)


def test_zero_and_nothing_are_no_bound() -> None:
    assert bound(0) == bound(None) == math.inf
    assert bound(2.5) == 2.5
