"""Short steps within a calibration: when they are taken, and what becomes of a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from tests.fakes.script import Script
from tests.unit.calibrating import Once, Told
from tests.unit.control.held import scripted
from tests.unit.control.made import arm
from tuner.types import Evicted, Host

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.control.held import Asked

SURE = Script(acceptance=(1.0,))


async def test_short_steps_follow_the_cells_of_their_start(tmp_path: Path) -> None:
    told = Told()
    async with scripted(tmp_path) as device:
        history = await told.follow(Once((arm(), arm(depth=2))), device)
    assert [(s.arm.depth, s.rows) for s in history.short_steps].count((0, 0)) == 3
    for rows in range(3):
        assert [(s.arm.depth, s.rows) for s in history.short_steps].count((2, rows)) == 3
    assert {(s.arm, s.start_id, s.fingerprint) for s in history.short_steps} == {
        (o.arm, o.start_id, o.fingerprint) for o in history.observations
    }
    assert [note for _, note in told.progress if "row cost" in note] == [
        "tiny@0 row cost",
        "tiny@2 row cost",
    ]
    # The cells come first, with their caches off; short steps are no repetitions.
    assert [asked.body["cache_prompt"] for asked in device.asked[:3]] == [False] * 3
    assert len(told.repetitions) == len(history.observations) == 4
    # A chat is continued as the model sees it.
    assert device.asked[3].path == "/apply-template"
    assert device.asked[3].body == {"messages": device.asked[1].body["messages"]}
    first = device.asked[4].body
    assert first["cache_prompt"] is True
    assert (first["prompt"], first["seed"]) == (["Say what a list is."], 42)


async def test_an_engine_without_templates_continues_the_bare_words(tmp_path: Path) -> None:
    told = Told()

    def trouble(asked: Asked) -> str | None:
        return "mute" if asked.path == "/apply-template" else None

    async with scripted(tmp_path, trouble=trouble) as device:
        history = await told.follow(Once((arm(),)), device)
    assert device.asked[4].body["prompt"] == ["Say what a list is."]
    assert len(history.short_steps) == 3


async def test_short_steps_walk_the_texts_of_the_cells(tmp_path: Path) -> None:
    told = Told()
    async with scripted(tmp_path, script=SURE) as device:
        await told.follow(Once((arm(depth=3),), short_steps=40), device)
    starts = [a.body["prompt"] for a in device.asked[4:] if len(a.body["prompt"]) == 1]
    assert starts == [["Say what a list is."], ["def main() -> None:"]]


async def test_no_short_step_is_taken_where_none_is_asked_for_or_layers_are_not_in_place(
    tmp_path: Path,
) -> None:
    told = Told()
    async with scripted(
        tmp_path,
        residency=lambda which: Evicted(layers=1) if which.depth == 2 else Host(),
    ) as device:
        plain = await told.follow(Once((arm(depth=1),), short_steps=0), device)
        evicted = await told.follow(Once((arm(depth=2),)), device)
    assert plain.short_steps == evicted.short_steps == ()
    assert {asked.path for asked in device.asked} >= {"/completion"}
    assert not [asked for asked in device.asked if asked.body.get("cache_prompt")]


async def test_an_engine_that_dies_between_short_steps_fails_its_start_and_keeps_what_it_told(
    tmp_path: Path,
) -> None:
    told = Told()

    def trouble(asked: Asked) -> str | None:
        return "die" if asked.arm.depth == 1 and asked.number == 8 else None

    async with scripted(tmp_path, trouble=trouble, script=SURE) as device:
        history = await told.follow(Once((arm(depth=1), arm(depth=2))), device)
    # A warm-up, two cells, a template, the first reply on a text; then two steps, and the end.
    assert [(s.arm.depth, s.rows) for s in history.short_steps[:2]] == [(1, 0), (1, 1)]
    assert {s.arm.depth for s in history.short_steps[2:]} == {2}
    first, second = history.starts
    assert first.failure is not None
    assert "did not answer /completion" in first.failure
    assert second.failure is None
    assert [o.arm.depth for o in history.observations] == [1, 1, 2, 2]


async def test_a_calibration_that_is_cancelled_between_short_steps_ends_at_once(
    tmp_path: Path,
) -> None:
    told = Told()
    async with scripted(
        tmp_path, trouble=lambda asked: "hang" if asked.number == 7 else None
    ) as device:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(told.follow, Once((arm(depth=1),)), device)
            with anyio.fail_after(5):
                await device.hanging.wait()
            tasks.cancel_scope.cancel()
        assert len(device.asked) == 7
