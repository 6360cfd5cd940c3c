"""Single steps timed by short replies: what is asked, what is kept, what is missing."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from mtpd.engine.client import EngineClient
from mtpd.errors import UpstreamError
from mtpd.short_steps import BUSY_TOKENS, TRIES, StepClock
from mtpd.types import UnixEndpoint
from tests.fakes.script import Script
from tests.unit.control.held import scripted
from tests.unit.control.made import arm
from tuner.types import Drafter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.unit.control.held import Asked
    from tuner.types import Arm, ShortStep

TEXTS = ("def main() -> None:", "The history of the city")
EVERY = Script(acceptance=(1.0,), tps0=50.0, row_cost=0.4, draft_share=0.2, reshape_ms=3.0)

Answer = dict[str, Any]


def clock(client: EngineClient, which: Arm) -> StepClock:
    return StepClock(client=client, arm=which, start_id="s", fingerprint="f", seed=7)


async def taken(steps: StepClock, wanted: int, *texts: str) -> list[ShortStep]:
    return [step async for step in steps.steps(texts or TEXTS, wanted)]


def counted(steps: list[ShortStep], depth: int) -> list[int]:
    return [[step.rows for step in steps].count(rows) for rows in range(depth + 1)]


@asynccontextmanager
async def answering(
    folder: Path, answer: Callable[[int, dict[str, Any]], Answer | int]
) -> AsyncIterator[EngineClient]:
    """An engine that gives what ``answer`` says: a reply, or a status without one."""
    number = 0

    async def post(request: web.Request) -> web.Response:
        nonlocal number
        number += 1
        found = answer(number, json.loads(await request.read()))
        if isinstance(found, int):
            return web.json_response({"error": {"message": "no"}}, status=found)
        return web.json_response(found)

    app = web.Application()
    app.router.add_post("/completion", post)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(folder / "e.sock")).start()
        async with EngineClient(UnixEndpoint(str(folder / "e.sock"))) as client:
            yield client
    finally:
        await runner.cleanup()


def reply(body: dict[str, Any], *, less: int = 0, **more: Any) -> Answer:
    """A reply as it should be, all draft tokens accepted, but for what is changed."""
    text, *made = body["prompt"]
    tokens = body["n_predict"] - less
    drafted = max(0, body["n_predict"] - 2)
    timings = {
        "cache_n": len(text.split()) + len(made) - 1,
        "prompt_n": 1,
        "prompt_ms": 1.0,
        "predicted_n": tokens,
        "predicted_ms": 5.0,
        "draft_n": drafted,
        "draft_n_accepted": max(0, drafted - less),
    }
    return {"tokens": list(range(tokens)), "timings": timings | more, "stop_type": "limit"}


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
async def test_every_row_count_is_timed_as_often_as_wanted_and_costs_what_the_engine_says(
    tmp_path: Path, depth: int
) -> None:
    async with scripted(tmp_path, script=EVERY) as device:
        started = await device.start(arm(depth=depth))
        steps = await taken(clock(started.client, arm(depth=depth)), 4)

    assert counted(steps, depth) == [4] * (depth + 1)
    for step in steps:
        # Drafting costs the full depth, whatever is cut; a new shape costs its own time.
        rows = 0.8 * step.rows + (0.2 * depth if step.rows else 0)
        extra = 0.003 if step.rows else 0.0
        assert step.step_s == pytest.approx(0.02 * (1 + 0.4 * rows) + extra)
        assert (step.arm, step.start_id, step.fingerprint) == (arm(depth=depth), "s", "f")


async def test_row_counts_take_turns_and_each_reply_goes_on_from_the_last(
    tmp_path: Path,
) -> None:
    async with scripted(tmp_path, script=EVERY) as device:
        started = await device.start(arm(depth=2))
        steps = await taken(clock(started.client, arm(depth=2)), 3)

    # Before each turn a steady reply keeps the card busy; it is not kept.
    assert [asked.body["n_predict"] for asked in device.asked] == [BUSY_TOKENS, 2, 3, 4] * 3
    assert [step.rows for step in steps] == [0, 1, 2] * 3
    made: list[int] = []
    words = len(TEXTS[0].split())
    timed = iter(steps)
    for asked in device.asked:
        assert asked.path == "/completion"
        assert asked.body["prompt"] == [TEXTS[0], *made]
        assert (asked.body["seed"], asked.body["temperature"]) == (7, 0.0)
        assert asked.body["cache_prompt"] is asked.body["ignore_eos"] is True
        if asked.body["n_predict"] != BUSY_TOKENS:
            assert next(timed).context_tokens == words + len(made)
        made += range(len(made), len(made) + asked.body["n_predict"])


async def test_a_step_whose_draft_was_not_all_accepted_is_tried_again_elsewhere(
    tmp_path: Path,
) -> None:
    async with scripted(tmp_path, script=Script(acceptance=(0.8, 0.6))) as device:
        started = await device.start(arm(depth=2))
        steps = await taken(clock(started.client, arm(depth=2)), 8)

    assert counted(steps, 2) == [8, 8, 8]
    assert len(device.asked) > 1 + 24
    # Once a row count has enough, only the others go on.
    assert [asked.body["n_predict"] for asked in device.asked].count(2) == 8


async def test_what_is_never_accepted_is_missing_after_bounded_tries_and_said(
    tmp_path: Path,
) -> None:
    async with scripted(tmp_path, script=Script(acceptance=(1.0, 0.0))) as device:
        started = await device.start(arm(depth=2))
        with capture_logs() as lines:
            steps = await taken(clock(started.client, arm(depth=2)), 3)

    assert counted(steps, 2) == [3, 3, 0]
    limits = [asked.body["n_predict"] for asked in device.asked]
    assert [limits.count(limit) for limit in (2, 3, 4)] == [3, 3, 3 * TRIES]
    (said,) = [line for line in lines if line["event"] == "short_steps.missing"]
    assert (said["arm"], said["rows"]) == ("tiny@2", {"2": 3})
    assert said["reason"] == f"{TRIES} replies for each were tried"


async def test_a_head_in_a_file_of_its_own_is_timed_as_one_that_is_built_in(
    tmp_path: Path,
) -> None:
    which = replace(arm(depth=1), drafter=Drafter.MTP_FILE)
    async with answering(tmp_path, lambda _number, body: reply(body)) as client:
        steps = await taken(clock(client, which), 2)

    assert counted(steps, 1) == [2, 2]


@pytest.mark.parametrize(
    "drafter", [Drafter.DRAFT_MODEL, Drafter.EAGLE3, Drafter.NGRAM, Drafter.ADAPTIVE]
)
async def test_drafters_that_may_stop_at_the_limit_are_not_timed(
    tmp_path: Path, drafter: Drafter
) -> None:
    which = replace(arm(depth=1), drafter=drafter)
    async with answering(tmp_path, lambda _number, body: reply(body)) as client:
        with capture_logs() as lines:
            steps = await taken(clock(client, which), 2)

    assert steps == []
    (said,) = lines
    assert said["rows"] == {"0": 2, "1": 2}
    assert said["reason"] == f"a drafter of kind {drafter.value} is not known to draft to the end"


async def test_a_walk_ends_after_so_many_tokens_and_the_next_text_begins(tmp_path: Path) -> None:
    async with scripted(tmp_path, script=EVERY) as device:
        started = await device.start(arm())
        short = replace(clock(started.client, arm()), walk_tokens=60)
        with capture_logs() as lines:
            steps = await taken(short, 99)

    firsts = [asked.body["prompt"] for asked in device.asked if len(asked.body["prompt"]) == 1]
    assert firsts == [[text] for text in TEXTS]
    # Steady replies of 24 tokens, single steps of 2: 24, 26, 50, 52, 76.
    assert max(len(asked.body["prompt"]) for asked in device.asked) == 1 + 52
    assert len(steps) == 2 * 2
    assert [line["reason"] for line in lines] == ["the texts came to their end"]


@pytest.mark.parametrize("how", ["fewer tokens", "another reason"])
async def test_a_text_that_ends_is_left_for_the_next_one(tmp_path: Path, how: str) -> None:
    prompts: list[list[Any]] = []

    def answer(number: int, body: dict[str, Any]) -> Answer:
        prompts.append(body["prompt"])
        if number != 2:
            return reply(body)
        return reply(body, less=1) if how == "fewer tokens" else reply(body) | {"stop_type": "eos"}

    async with answering(tmp_path, answer) as client:
        steps = await taken(clock(client, arm(depth=1)), 2)

    assert [prompt[0] for prompt in prompts[:3]] == [TEXTS[0], TEXTS[0], TEXTS[1]]
    assert prompts[2] == [TEXTS[1]]
    assert counted(steps, 1) == [2, 2]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (lambda body: reply(body) | {"tokens": None}, "the engine's reply has no tokens"),
        (lambda body: reply(body) | {"tokens": []}, "the engine's reply has no tokens"),
        (lambda body: reply(body) | {"timings": 1}, "the response carries no timings"),
        (
            lambda body: reply(body, prompt_n=9),
            "the engine does not continue from its cached prompt",
        ),
        (lambda _body: 400, "the engine answered /completion with status 400"),
    ],
)
async def test_an_engine_that_cannot_be_timed_so_is_asked_no_further(
    tmp_path: Path, broken: Callable[[dict[str, Any]], Answer | int], reason: str
) -> None:
    asked = 0

    def answer(number: int, body: dict[str, Any]) -> Answer | int:
        nonlocal asked
        asked = number
        return broken(body) if number == 3 else reply(body)

    async with answering(tmp_path, answer) as client:
        with capture_logs() as lines:
            steps = await taken(clock(client, arm(depth=1)), 2)

    assert [step.rows for step in steps] == [0]
    assert asked == 3
    assert [(line["reason"], line["rows"]) for line in lines] == [(reason, {"0": 1, "1": 2})]


@pytest.mark.parametrize(
    "change",
    [
        {"predicted_n": 4},
        {"draft_n": 2},
        {"draft_n_accepted": 0},
        {"draft_n": None, "draft_n_accepted": None},
        {"predicted_ms": 0.0},
    ],
)
async def test_only_one_step_with_all_of_its_rows_is_kept(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    def answer(_number: int, body: dict[str, Any]) -> Answer:
        return reply(body, **change) if body["n_predict"] == 3 else reply(body)

    async with answering(tmp_path, answer) as client:
        steps = await taken(clock(client, arm(depth=1)), 2)

    assert counted(steps, 1) == [2, 0]


async def test_an_engine_that_dies_is_the_callers_business(tmp_path: Path) -> None:
    def trouble(asked: Asked) -> str | None:
        return "die" if asked.number == 4 else None

    had: list[ShortStep] = []
    async with scripted(tmp_path, script=EVERY, trouble=trouble) as device:
        started = await device.start(arm(depth=1))
        walk = clock(started.client, arm(depth=1)).steps(TEXTS, 5)

        async def keep() -> None:
            async for step in walk:
                had.append(step)  # noqa: PERF401 - what came before the death counts

        with pytest.raises(UpstreamError):
            await keep()

    assert [step.rows for step in had] == [0, 1]


async def test_a_walk_that_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    async with scripted(
        tmp_path, script=EVERY, trouble=lambda asked: "hang" if asked.number == 3 else None
    ) as device:
        started = await device.start(arm(depth=1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(taken, clock(started.client, arm(depth=1)), 5)
            with anyio.fail_after(5):
                await device.hanging.wait()
            tasks.cancel_scope.cancel()

        assert len(device.asked) == 3
