"""A prompt that kills its engine, against the whole daemon over scripted processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.errors import NotFoundError
from tests.fakes.house import daemon_at, home
from tests.fakes.script import Script

if TYPE_CHECKING:
    import aiohttp

DEADLY, HARMLESS = 60, 2
"""Tokens to generate; the engine aborts when it has generated 40 in all."""


async def ask(client: aiohttp.ClientSession, tokens: int) -> tuple[int, dict[str, object]]:
    asked = {"model": "alpha", "prompt": "x", "n_predict": tokens}
    async with client.post("/completion", json=asked) as reply:
        return reply.status, await reply.json()


@pytest.mark.slow
async def test_it_is_refused_and_journalled_until_an_operator_lets_it_try_again() -> None:
    async with home(Script(crash_at_token=40)) as place, daemon_at(place) as (running, client):
        status, body = await ask(client, DEADLY)
        for _ in range(5):  # a machine that stood still may have missed a death
            if status != 422:
                status, body = await ask(client, DEADLY)
        assert status == 422
        error = body["error"]
        assert isinstance(error, dict)
        assert error["code"] == "request_quarantined"
        assert (await ask(client, HARMLESS))[0] == 200

        (shown,) = (await running.control.status()).quarantine
        assert shown.profile == "alpha"
        assert all(death.startswith("crash: ") for death in shown.deaths)
        (decision,) = await running.control.decisions(subject="alpha", limit=1)
        assert decision.act == "quarantine"
        assert shown.reason in decision.reason
        assert shown.reason in error["message"]
        assert decision.evidence[0].startswith(f"sha256 {shown.id}")
        assert len(decision.evidence) == 1 + len(shown.deaths)

        with pytest.raises(NotFoundError):
            await running.control.release("other")
        assert (await running.control.release(shown.id)).id == shown.id
        assert running.control.quarantine() == ()
        (decision,) = await running.control.decisions(subject="alpha", limit=1)
        assert decision.act == "release"
