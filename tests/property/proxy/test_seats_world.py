"""Whatever is asked of several seats at once, everything ends and nothing is overbooked."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from mtpd.config.model import Group
from mtpd.errors import MtpdError
from mtpd.proxy.room import Need, Source
from tests.fakes.actors import Fails
from tests.fakes.board import PROFILES, Bench, arm, bench

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.types import LaunchPlan

MIB = 2**20
TOTAL = 10
HELD = frozenset({"loading", "ready", "stopping"})

profiles = st.sampled_from(PROFILES)
groups = st.builds(
    lambda first, second, rules: [
        Group(name="x", members=tuple(first), **rules[0]),
        Group(name="y", members=tuple(second - first), **rules[1]),
    ],
    st.frozensets(profiles, max_size=3),
    st.frozensets(profiles, max_size=3),
    st.tuples(
        *[
            st.fixed_dictionaries(
                {name: st.booleans() for name in ("swap", "exclusive", "persistent")}
            )
            for _ in range(2)
        ]
    ),
)
orders = st.lists(
    st.tuples(
        st.sampled_from(["request", "bring_up", "switch", "stop", "hold", "settled", "crash"]),
        profiles,
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=10,
)


@dataclass
class Card:
    """A card on which each profile holds some MiB while its engine is there."""

    sizes: dict[str, int]
    made: Bench | None = None

    async def need(self, plan: LaunchPlan) -> Need:
        return self.held(plan)

    async def free(self, running: Sequence[LaunchPlan]) -> int:
        await anyio.lowlevel.checkpoint()
        return TOTAL * MIB - self.used_bytes()

    def held(self, plan: LaunchPlan) -> Need:
        return Need(self.sizes[plan.arm.profile] * MIB, Source.MEASURED)

    def used_bytes(self) -> int:
        assert self.made is not None
        views = [view for view in self.made.board.engines() if view.state in HELD]
        return sum(self.sizes[view.profile] for view in views) * MIB

    def check(self) -> None:
        """Several at once fit; one that is alone is left to its start."""
        assert self.made is not None
        there = [view for view in self.made.board.engines() if view.state in HELD]
        assert len(there) < 2 or self.used_bytes() <= TOTAL * MIB, [v.profile for v in there]


@given(groups, st.lists(st.integers(1, 12), min_size=5, max_size=5), orders)
@settings(max_examples=60, deadline=None)
def test_everything_ends_and_nothing_is_overbooked(
    rules: list[Group], sizes: list[int], asked: list[tuple[str, str, int]]
) -> None:
    anyio.run(play, rules, dict(zip(PROFILES, sizes, strict=True)), asked)


async def play(
    rules: list[Group], sizes: dict[str, int], asked: list[tuple[str, str, int]]
) -> None:
    card = Card(sizes)
    rules = [group for group in rules if group.members]
    async with bench(groups=rules, account=card) as made:
        card.made = made
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for what, profile, turns in asked:
                    tasks.start_soon(obey, made, card, what, profile, turns)
                    for _ in range(turns):
                        await anyio.lowlevel.checkpoint()
                        card.check()
        assert made.board.queue().waiting == 0
        assert made.board.queue().in_flight == 0
        with anyio.fail_after(30):
            await made.board.stop_engine(None, "the end")
        assert made.serving() == []


async def obey(made: Bench, card: Card, what: str, profile: str, turns: int) -> None:
    with suppress(MtpdError):
        match what:
            case "request":
                async with made.board.lease(profile, request_id="1"):
                    for _ in range(turns):
                        await anyio.lowlevel.checkpoint()
                        card.check()
            case "bring_up":
                await made.board.bring_up(profile, "a test")
            case "switch":
                await made.board.switch(arm(profile, turns), reason="a test")
            case "stop":
                await made.board.stop_engine(profile, "a test")
            case "hold":
                async with made.board.hold(reason="a test") as hold:
                    await hold.start(arm(profile, turns))
                    assert len(made.serving()) == 1
            case "settled":
                async with made.board.settled():
                    await anyio.lowlevel.checkpoint()
            case _:
                made.actor(profile).script.append(Fails())
