"""A bad connection between proxy and engine: what is whole arrives whole, what is not never
looks so, and the slot is free afterwards.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Literal

import pytest

from mtpd.config.model import EngineTimeouts
from mtpd.proxy.conditions import Conditions
from mtpd.types import UnixEndpoint
from tests.fakes.board import until
from tests.fakes.front import Stage, stage
from tests.fakes.toxics import Toxic, toxic
from tests.fakes.upstream import DONE, SSE, Conversation, json_reply, stream

Outcome = Literal["whole", "broken", "refused"]

ASK = b'{"model":"a","stream":true}'
EVENTS = [b'data: {"content":"%d"}\n\n' % number for number in range(40)]
WHOLE = b"".join([*EVENTS, DONE])
JSON_REPLY = json.dumps({"content": "x" * 900}).encode()
PATIENCE = Conditions(engine=EngineTimeouts(first_byte_s=5.0, idle_s=0.5))

TOXICS: dict[str, tuple[Toxic, Outcome]] = {
    "latency": (Toxic(latency_s=0.02), "whole"),
    "bandwidth": (Toxic(bytes_per_s=4000.0, slice_bytes=200), "whole"),
    "slicer": (Toxic(slice_bytes=3), "whole"),
    "slow_close": (Toxic(close_s=0.3), "whole"),
    "limit_data": (Toxic(limit_bytes=700), "broken"),
    "reset_peer": (Toxic(reset_bytes=700), "broken"),
    "timeout": (Toxic(mute_bytes=700), "broken"),
    "limit_data at the head": (Toxic(limit_bytes=20), "refused"),
    "reset_peer at once": (Toxic(reset_bytes=0), "refused"),
    "down": (Toxic(down=True), "refused"),
}


@pytest.mark.parametrize("name", TOXICS)
async def test_each_toxic_has_its_outcome_and_frees_the_slot(name: str) -> None:
    what, outcome = TOXICS[name]
    with tempfile.TemporaryDirectory(prefix="mtpd-t-") as folder:
        path = Path(folder) / "toxic.sock"
        async with stage(stream(*EVENTS, DONE), conditions=PATIENCE) as s:
            engine = s.bench.endpoints["a"]
            assert isinstance(engine, UnixEndpoint)
            s.bench.endpoints["a"] = UnixEndpoint(str(path))
            async with toxic(path, Path(engine.path), what):
                if outcome == "broken":
                    await breaks(s)
                else:
                    response, body = await s.post(data=ASK)
                    whole = outcome == "whole"
                    assert response.status == 200 if whole else response.status in {502, 503}
                    assert body == WHOLE if whole else json.loads(body)["error"]
                await until(lambda: s.bench.board.queue().in_flight == 0)
                assert len(s.engine.seen) <= 2, "at most one more attempt, and none after a byte"
                if outcome == "broken":
                    assert len(s.engine.seen) == 1


async def breaks(s: Stage) -> None:
    """A stream that began ends so that nobody takes it for whole."""
    wire = await s.connect(ASK)
    assert (await wire.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    body = await wire.rest()
    assert b"[DONE]" not in body
    assert not body.endswith(b"0\r\n\r\n"), "it looks whole"
    assert b'"error"' in body


@pytest.mark.parametrize("kind", ["limit", "reset"])
async def test_a_stream_that_is_cut_anywhere_is_never_passed_off_as_whole(kind: str) -> None:
    rng = random.Random(41)  # noqa: S311 - reproducible, not secret
    wires = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in [*EVENTS, DONE]) + b"0\r\n\r\n"
    head = len("HTTP/1.1 200 OK\r\n" + "".join(f"{k}: {v}\r\n" for k, v in SSE.items()) + "\r\n")
    with tempfile.TemporaryDirectory(prefix="mtpd-t-") as folder:
        for number in range(12):
            at = rng.randrange(head + 30, head + len(wires) - len(DONE) - 12)
            what = Toxic(limit_bytes=at) if kind == "limit" else Toxic(reset_bytes=at)
            path = Path(folder) / f"{number}.sock"
            async with stage(stream(*EVENTS, DONE), conditions=PATIENCE) as s:
                engine = s.bench.endpoints["a"]
                assert isinstance(engine, UnixEndpoint)
                s.bench.endpoints["a"] = UnixEndpoint(str(path))
                async with toxic(path, Path(engine.path), what):
                    wire = await s.connect(ASK)
                    rest = await wire.rest()
                assert b"[DONE]" not in rest, at
                assert not rest.endswith(b"0\r\n\r\n"), at
                assert s.finished[0].outcome == "upstream_lost", at


async def test_a_json_reply_that_is_cut_is_not_completed() -> None:
    async def silent(talk: Conversation) -> None:
        await json_reply(JSON_REPLY)(talk)

    with tempfile.TemporaryDirectory(prefix="mtpd-t-") as folder:
        path = Path(folder) / "toxic.sock"
        async with stage(silent, conditions=PATIENCE) as s:
            engine = s.bench.endpoints["a"]
            assert isinstance(engine, UnixEndpoint)
            s.bench.endpoints["a"] = UnixEndpoint(str(path))
            async with toxic(path, Path(engine.path), Toxic(limit_bytes=400)):
                wire = await s.connect(b'{"model":"a"}')
                rest = await wire.rest()
            assert not rest.endswith(JSON_REPLY[-20:])
            assert s.finished[0].outcome == "upstream_lost"
            await until(lambda: s.bench.board.queue().in_flight == 0)
