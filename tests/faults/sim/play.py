"""Plays the world of one seed from its beginning to its end."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import structlog

from tests.faults.sim.loop import StrandedError, run
from tests.faults.sim.people import People
from tests.faults.sim.rules import Rules
from tests.faults.sim.world import World

if TYPE_CHECKING:
    from tests.faults.sim.loop import VirtualLoop

__all__ = ["Played", "SimulationError", "play"]

LONGEST_END_S = 60.0
"""So long may the daemon take to end, with every process deaf."""
LATEST_S = 3 * 3600.0
"""Nobody is served for longer."""


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a world.

    Attributes:
        seed: Which world.
        digest: Of all that happened, with its times.
        trace: All that happened.
        ends: How many requests ended how.
        starts: How many processes were created.
        turns: Steps after which the rules were looked at.
        virtual_s: How long it was.
    """

    seed: int
    digest: str
    trace: tuple[tuple[float, str], ...]
    ends: dict[str, int]
    starts: int
    turns: int
    virtual_s: float


class SimulationError(AssertionError):
    """A rule was broken; says how to see it again."""

    def __init__(self, seed: int, error: BaseException, trace: list[tuple[float, str]]) -> None:
        last = "\n".join(f"{at - 1000.0:10.3f}  {text}" for at, text in trace[-25:])
        super().__init__(
            f"SEED={seed}: {error}\nthe last of it:\n{last}\n"
            f"again: python -m tests.faults.sim {seed}"
        )
        self.trace = trace


def play(seed: int) -> Played:
    """Play a world.

    Raises:
        SimulationError: A rule was broken, or somebody was stranded.
    """
    made: list[World] = []

    async def main(loop: VirtualLoop) -> Played:
        world = World(loop, seed)
        made.append(world)
        return await _life(world)

    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    before = structlog.get_config()
    structlog.configure(wrapper_class=quiet)
    try:
        return run(main)
    except BaseException as error:
        world = made[0]
        raise SimulationError(seed, world.broken or _first(error), world.trace) from error
    finally:
        structlog.configure(**before)


async def _life(world: World) -> Played:
    rng, rules = world.chance.of("life"), Rules(world)
    people = People(world, rules)
    length_s = rng.choice((60.0, 200.0, 600.0))
    began = world.loop.time()
    async with anyio.create_task_group() as clients:
        board = anyio.CancelScope()
        clients.start_soon(_daemon, world, board)
        if rng.random() < 0.5:
            clients.start_soon(_end_after, world, rng.uniform(1.0, length_s), board)
        with anyio.move_on_after(LATEST_S) as late:
            await people.act(began + length_s)
        if late.cancelled_caught:
            msg = f"an order never ends, and {people.came - len(people.ends)} requests"
            raise rules.broken(msg)
        world.ended_at = world.ended_at or world.loop.time()
        board.cancel()
    rules.over()
    if len(people.ends) != people.came:
        msg = f"{people.came} requests came and {len(people.ends)} ended"
        raise rules.broken(msg)
    return _played(world, people, began)


async def _daemon(world: World, scope: anyio.CancelScope) -> None:
    with scope:
        await world.board.run()
    ended_at = world.ended_at or world.loop.time()
    took_s = world.loop.time() - ended_at
    world.say("the daemon has ended")
    if took_s > LONGEST_END_S:
        msg = f"the daemon took {took_s:.1f} s to end"
        raise StrandedError(msg)


async def _end_after(world: World, seconds: float, scope: anyio.CancelScope) -> None:
    """The daemon is told to end while everybody is still busy."""
    await anyio.sleep(seconds)
    world.say("the daemon is told to end")
    world.ended_at = world.loop.time()
    scope.cancel()


def _played(world: World, people: People, began: float) -> Played:
    ends: dict[str, int] = {}
    for end in people.ends.values():
        ends[end] = ends.get(end, 0) + 1
    text = "\n".join(f"{at:.6f} {what}" for at, what in world.trace)
    return Played(
        seed=world.chance.seed,
        digest=hashlib.sha256(text.encode()).hexdigest(),
        trace=tuple(world.trace),
        ends=ends,
        starts=len(world.machine.children),
        turns=world.loop.turns,
        virtual_s=world.loop.time() - began,
    )


def _first(error: BaseException) -> BaseException:
    """The innermost error of nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
