"""Who uses the daemon of a world: clients, operators, the tuner, and what breaks."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from mtpd.errors import MtpdError
from mtpd.proxy.admission_types import Claim, Priority
from mtpd.proxy.outcomes import RejectedError
from tests.faults.sim.child import LostError

if TYPE_CHECKING:
    import random

    from mtpd.proxy.engines import Lease
    from tests.faults.sim.rules import Rules
    from tests.faults.sim.world import World

__all__ = ["People"]

ATTEMPTS = 2
"""As the proxy tries a request that got no byte."""
ORDERS = ("switch", "switch", "force", "stop", "bring up", "hold", "hold", "settle", "choose")
FAULTS = (
    *("kill", "kill", "freeze", "occupy", "leave", "silence", "full disk", "no note", "wall"),
    "cap",
)


class People:
    """All who act on one world, each in a task of its own.

    Attributes:
        ends: How each request ended, by its number.
    """

    def __init__(self, world: World, rules: Rules) -> None:
        self._world, self._rules, self._board = world, rules, world.board
        self.ends: dict[int, str] = {}
        self.came = 0

    async def act(self, until_s: float) -> None:
        """Let them come, until nobody does any more and all have gone."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._clients, until_s)
            tasks.start_soon(self._operators, until_s)
            tasks.start_soon(self._faults, until_s)
            tasks.start_soon(self._nights, until_s)

    # Clients ------------------------------------------------------------------------

    async def _clients(self, until_s: float) -> None:
        rng = self._world.chance.of("clients")
        every_s = rng.choice((1.0, 5.0, 15.0, 60.0))
        async with anyio.create_task_group() as tasks:
            while self._world.loop.time() < until_s:
                await anyio.sleep(rng.expovariate(1 / every_s))
                for _ in range(rng.choice((1, 1, 1, 2, 5))):
                    tasks.start_soon(self._client, self.came, rng)
                    self.came += 1

    async def _client(self, number: int, rng: random.Random) -> None:
        profile, seconds = rng.choice(self._world.names), rng.expovariate(1 / 8.0)
        patience_s = rng.choice((float("inf"), float("inf"), rng.expovariate(1 / 20.0)))
        claim = Claim(
            priority=rng.choice((Priority.NORMAL, Priority.NORMAL, Priority.HIGH, Priority.LOW)),
            alone=rng.random() < 0.03,
        )
        self._world.say(f"request {number} {profile}")
        end = "left"
        with anyio.move_on_after(patience_s):
            end = await self._served(number, profile, seconds, claim)
        self._ended(number, end)

    def _ended(self, number: int, end: str) -> None:
        if number in self.ends:
            msg = f"request {number} ends as {self.ends[number]} and as {end}"
            raise self._rules.broken(msg)
        self.ends[number] = end
        self._world.say(f"request {number} {end}")

    async def _served(self, number: int, profile: str, seconds: float, claim: Claim) -> str:
        lost: Lease | None = None
        for _ in range(ATTEMPTS):
            if lost is not None:
                await self._board.recheck(lost)
            try:
                async with self._board.lease(profile, request_id=str(number), claim=claim) as lease:
                    with lease.cut:
                        if await self._answered(profile, lease, seconds):
                            return "complete"
                    if lease.cut.cancelled_caught:
                        return "cut"
            except RejectedError as error:
                return f"rejected {error.kind}"
            lost = lease
        return "lost"

    async def _answered(self, profile: str, lease: Lease, seconds: float) -> bool:
        child = self._rules.leased(profile, lease)
        if child is None:
            await anyio.sleep(0.001)  # connection refused
            return False
        try:
            await child.complete(seconds)
        except LostError:
            return False
        return True

    # Operators and the tuner --------------------------------------------------------

    async def _operators(self, until_s: float) -> None:
        rng = self._world.chance.of("operators")
        every_s = rng.choice((20.0, 60.0, 300.0))
        async with anyio.create_task_group() as tasks:
            while self._world.loop.time() < until_s:
                await anyio.sleep(rng.expovariate(1 / every_s))
                order = (rng.choice(ORDERS), rng.choice(self._world.names), rng.randrange(5))
                self._world.say(f"operator: {order}")
                tasks.start_soon(self._order, *order, rng.expovariate(1 / 60.0))

    async def _order(self, what: str, profile: str, depth: int, patience_s: float) -> None:
        arm = self._world.models.config.profiles[profile].arm(depth)
        with suppress(MtpdError), anyio.move_on_after(patience_s if depth == 0 else None):
            match what:
                case "switch":
                    await self._board.switch(arm, reason="asked", drain_timeout_s=patience_s)
                case "force":
                    self._world.forced.add(profile)
                    await self._board.switch(arm, reason="forced", force=True)
                case "stop":
                    await self._board.stop_engine(profile, "asked", force=depth > 2)
                case "bring up":
                    await self._board.bring_up(profile, "preloaded")
                case "hold":
                    await self._hold(depth)
                case "settle":
                    async with self._board.settled():
                        await anyio.sleep(0.1)
                case _:
                    self._world.chosen[profile] = arm

    async def _hold(self, starts: int) -> None:
        """Measure some arms as the tuner does."""
        world, rng = self._world, self._world.chance.of("holds")
        async with self._board.hold(reason="measures") as hold:
            for _ in range(starts):
                name = rng.choice(world.names)
                arm = world.models.config.profiles[name].arm(rng.randrange(5))
                with suppress(MtpdError):
                    view = await hold.start(arm)
                    if view.state == "ready":
                        await self._measured(name, rng.expovariate(1 / 10.0))

    async def _measured(self, profile: str, seconds: float) -> None:
        self._rules.measuring(profile)
        self._world.holding = True
        try:
            child = next(c for c in self._world.machine.children[::-1])
            with suppress(LostError), anyio.move_on_after(60.0):
                await child.complete(seconds)
        finally:
            self._world.holding = False

    # What breaks --------------------------------------------------------------------

    async def _faults(self, until_s: float) -> None:
        world, rng = self._world, self._world.chance.of("faults")
        if not world.storm:
            return
        while world.loop.time() < until_s:
            await anyio.sleep(rng.expovariate(world.storm / 40.0))
            what = rng.choice(FAULTS)
            world.say(f"fault: {what}")
            self._break(what, rng)
            if what == "full disk" and not world.ledger.refuses:
                await world.ledger.settle()

    async def _nights(self, until_s: float) -> None:
        """The machine is suspended now and then; a card may come back from it without its state."""
        world, rng = self._world, self._world.chance.of("nights")
        if not world.storm or rng.random() < 0.5:
            return
        while world.loop.time() < until_s:
            await anyio.sleep(rng.expovariate(1 / 100.0))
            asleep_s = rng.choice((1.0, 3.0, 600.0, 28_800.0))
            world.say(f"suspended for {asleep_s:g} s")
            world.clock.asleep_s += asleep_s
            world.clock.wall += dt.timedelta(seconds=asleep_s)
            if (living := world.machine.live()) and rng.random() < 0.2:
                rng.choice(living).card_lost = True
            await anyio.sleep(rng.uniform(0.0, 1.0))  # until somebody looks
            world.waking.look()

    def _break(self, what: str, rng: random.Random) -> None:
        world = self._world
        living = world.machine.live()
        match what:
            case "kill" if living:
                rng.choice(living).end_by(9)
            case "freeze" if living:
                rng.choice(living).hang()
            case "occupy":
                world.card.occupy(rng.choice((500, 4000, 15000)))
            case "leave":
                world.card.occupy(11)
            case "silence":
                world.card.silent_until = world.loop.time() + rng.choice((3.0, 20.0, 200.0))
            case "full disk":
                world.ledger.refuses = not world.ledger.refuses
            case "no note":
                world.ledger.notes.refuses = not world.ledger.notes.refuses
            case "wall":
                world.clock.wall += dt.timedelta(days=rng.choice((-400, 400)))
            case "cap":
                world.card.cap_w = rng.choice((150.0, 225.0))
            case _:
                pass
