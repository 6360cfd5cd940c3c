"""Pools on a whole daemon: ``auto`` and tags in requests, lists, headers and ``/running``."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.fakes.house import daemon_at, home, run_operation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

    from mtpd.app import Daemon
    from tests.fakes.house import Home

TAGGED = {"alpha": ["safe"], "beta": ["safe", "uncensored"]}


@asynccontextmanager
async def tagged() -> AsyncIterator[Home]:
    """A configuration whose two models have tags."""
    async with home() as place:
        text = place.config.read_text()
        for name, tags in TAGGED.items():
            text = text.replace(f"[models.{name}]\n", f"[models.{name}]\ntags = {tags}\n")
        place.config.write_text(text)
        yield place


async def asked(client: aiohttp.ClientSession, model: str) -> tuple[str, str]:
    """Who answered a request, and why."""
    async with client.post("/completion", json={"model": model, "prompt": "x"}) as reply:
        assert reply.status == 200, await reply.text()
        return reply.headers["X-Mtpd-Profile"], reply.headers["X-Mtpd-Why"]


async def got(client: aiohttp.ClientSession, path: str) -> dict[str, Any]:
    async with client.get(path) as reply:
        assert reply.status == 200
        found: dict[str, Any] = await reply.json()
        return found


async def starts(running: Daemon) -> dict[str, int]:
    return {one.profile: one.starts for one in (await running.control.status()).engines}


async def test_a_request_with_tags_is_answered_by_a_member_that_has_them_and_says_why() -> None:
    async with tagged() as place, daemon_at(place) as (running, client):
        first = "the members of both were not compared yet: its first one"
        assert await asked(client, "auto") == ("alpha", f"{first}, until mtpctl tune both has run")
        profile, why = await asked(client, "both:uncensored")
        assert (profile, why.startswith(f"{first} with the tag uncensored")) == ("beta", True)
        # Beta serves and is of the pool: neither the pool nor a tag that it has swaps it away.
        for name in ("auto", "both", "auto:safe"):
            profile, why = await asked(client, name)
            assert profile == "beta"
            assert why.startswith("beta serves and is of both")
        assert await starts(running) == {"alpha": 1, "beta": 1}
        profile, why = await asked(client, "alpha")
        assert (profile, why.split(":")[0]) == ("alpha", "not measured yet")
        (shown,) = (await got(client, "/running"))["running"]
        assert (shown["model"], shown["depth"], shown["pools"]) == ("alpha", 0, ["both"])
        assert shown["reason"].startswith("not measured yet")


async def test_a_measured_pool_chooses_among_its_tagged_members_also_after_a_restart() -> None:
    async with tagged() as place:
        async with daemon_at(place) as (running, client):
            tuning = await running.control.tune(
                subject="both",
                method="sweep",
                depths=(0,),
                workloads=None,
                prompts=2,
                repetitions=1,
                max_tokens=64,
                apply=True,
                idempotency_key=None,
            )
            assert (await run_operation(running, tuning)).state == "done"
            chosen, _ = await asked(client, "auto")
            other = ({"alpha", "beta"} - {chosen}).pop()
            assert (await asked(client, other))[0] == other
            profile, why = await asked(client, "auto:uncensored")
            assert profile == "beta"
            assert "R2 balanced: beta@0 (" in why
        async with daemon_at(place) as (_, client):
            profile, why = await asked(client, "auto:uncensored")
            assert (profile, why.split(" (")[0]) == ("beta", "R2 balanced: beta@0")


async def test_unknown_tags_are_told_with_those_that_there_are() -> None:
    async with tagged() as place, daemon_at(place) as (running, client):
        for name in ("auto:fast", "both:fast,safe"):
            async with client.post("/completion", json={"model": name, "prompt": "x"}) as reply:
                error = (await reply.json())["error"]
                assert (reply.status, error["code"]) == (404, "model_not_found")
                assert (
                    "has the tag 'fast'; the tags there are: safe, uncensored" in error["message"]
                )
        async with client.get("/upstream/auto:fast/health") as reply:
            assert reply.status == 404
            assert "has the tag 'fast'" in (await reply.json())["error"]["message"]
        assert await starts(running) == {}


async def test_auto_and_pools_are_listed_with_their_tags() -> None:
    async with tagged() as place, daemon_at(place) as (_, client):
        listed = (await got(client, "/v1/models"))["data"]
        tags = {one["id"]: one["meta"]["mtpd"]["tags"] for one in listed}
        assert tags == {
            "auto": ["safe", "uncensored"],
            "both": ["safe", "uncensored"],
            "alpha": ["safe"],
            "beta": ["safe", "uncensored"],
        }
