"""A switchboard over fake supervisors, and what a test wants to say about it."""

from __future__ import annotations

from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from mtpd.config.model import Config, Profile
from mtpd.errors import NotFoundError
from mtpd.proxy.outcomes import RejectedError
from mtpd.proxy.seats import Seating
from mtpd.proxy.switch import Switchboard
from mtpd.types import Command, EngineKey, LaunchPlan, UnixEndpoint
from mtpd.units import HOST
from tests.fakes.actors import FakeActor
from tests.fakes.clock import FakeClock
from tuner.types import Arm, Decision, Drafter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractContextManager

    from mtpd.config.model import Group
    from mtpd.proxy.beside import Account
    from mtpd.proxy.engines import Lease
    from mtpd.types import Endpoint

__all__ = ["Bench", "Client", "Queue", "arm", "bench", "clients", "until"]


PROFILES = ("a", "b", "c", "d", "e")


@dataclass(frozen=True)
class Queue:
    max_waiting: int = 64
    queue_timeout_s: float = 120.0
    batch_max_requests: int = 16
    batch_max_s: float = 30.0
    priority_age_s: float = 30.0
    max_waiting_per_token: int = 0


def arm(profile: str, depth: int = 0) -> Arm:
    return Arm(profile=profile, drafter=Drafter.MTP if depth else Drafter.NONE, depth=depth)


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that other tasks bring about."""
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110 - any condition, not one that can set an event
            await anyio.sleep(0.002)


class Bench:
    """One device, profiles by any name, every engine scripted.

    Attributes:
        config: The groups; profiles are those that a hold takes the seats of.
        decisions: Written down so far.
        chosen: The arm chosen for a profile; depth 0 for those not named.
        endpoints: Where a profile's engine listens.
        connecting: Holds up every connection to an engine until it is set.
        unplannable: Profiles whose plan fails, each with its error.
        fingerprints: Of a profile's model file and all else; "" for those not named.
        settings: What is configured for a profile; "" for those not named.
        removed: Profiles that are not configured any more.
    """

    def __init__(
        self,
        *,
        limits: Queue = Queue(),
        slots: int = 1,
        asking: Callable[[str], AbstractContextManager[None]] = lambda _profile: nullcontext(),
        groups: Sequence[Group] = (),
        account: Account | None = None,
    ) -> None:
        self.clock = FakeClock()
        self.config = Config(
            groups={group.name: group for group in groups},
            profiles={name: Profile(name=name, model="/m.gguf") for name in PROFILES},
        )
        self.decisions: list[Decision] = []
        self.chosen: dict[str, Arm] = {}
        self.endpoints: dict[str, Endpoint] = {}
        self.unplannable: dict[str, Exception] = {}
        self.fingerprints: dict[str, str] = {}
        self.settings: dict[str, str] = {}
        self.removed: set[str] = set()
        self.actors: dict[str, FakeActor] = {}
        self.connecting: anyio.Event | None = None
        self.board: Switchboard[str] = Switchboard(
            make_actor=lambda key: self.actor(key.profile),
            plan_for=self._plan,
            arm_for=self._arm,
            seating=Seating(self.config, device_for=lambda _: HOST),
            slots_for=lambda _: slots,
            connect=self._connect,
            limits=limits,
            clock=self.clock,
            is_current=self._is_current,
            asking=asking,
            account=account,
            decide=self._decide,
        )

    def actor(self, profile: str) -> FakeActor:
        """The supervisor of a profile, also before it was asked for."""
        if profile not in self.actors:
            self.actors[profile] = FakeActor(EngineKey(HOST, profile))
        return self.actors[profile]

    def serving(self) -> list[str]:
        """Every arm that is ready."""
        return [
            f"{view.profile}@{view.arm.depth}"
            for view in self.board.engines()
            if view.state == "ready" and view.arm is not None
        ]

    async def _decide(self, decision: Decision) -> None:
        self.decisions.append(decision)

    def _plan(self, wanted: Arm) -> LaunchPlan:
        if wanted.profile in self.unplannable:
            raise self.unplannable[wanted.profile]
        return LaunchPlan(
            key=EngineKey(HOST, wanted.profile),
            arm=wanted,
            command=Command(argv=(), env={}),
            endpoint=self.endpoints.get(wanted.profile, UnixEndpoint("/nonexistent")),
            fingerprint=self.fingerprints.get(wanted.profile, ""),
            settings=self.settings.get(wanted.profile, ""),
        )

    def _arm(self, profile: str) -> Arm:
        if profile in self.removed:
            msg = f"{profile} is not in the configuration any more"
            raise NotFoundError(msg)
        return self.chosen.get(profile, arm(profile))

    def _is_current(self, plan: LaunchPlan) -> bool:
        name = plan.arm.profile
        return name not in self.removed and plan.settings == self.settings.get(name, "")

    @asynccontextmanager
    async def _connect(self, endpoint: Endpoint) -> AsyncIterator[str]:
        if self.connecting is not None:
            await self.connecting.wait()
        yield f"client of {endpoint}"


@asynccontextmanager
async def bench(
    *,
    limits: Queue = Queue(),
    slots: int = 1,
    groups: Sequence[Group] = (),
    account: Account | None = None,
) -> AsyncIterator[Bench]:
    """Run a switchboard while the block runs."""
    made = Bench(limits=limits, slots=slots, groups=groups, account=account)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.board.run)
        yield made
        tasks.cancel_scope.cancel()


class Client:
    """A request in a task of its own."""

    def __init__(self, made: Bench, profile: str) -> None:
        self.made, self.profile = made, profile
        self.lease: Lease | None = None
        self.rejected: RejectedError | None = None
        self.finish = anyio.Event()
        self.scope = anyio.CancelScope()
        self.ended = False

    def arm(self) -> Arm | None:
        """What serves it; a method, because mypy would narrow an attribute across awaits."""
        return None if self.lease is None else self.lease.arm

    async def run(self) -> None:
        with self.scope:
            try:
                async with self.made.board.lease(self.profile, request_id="r") as self.lease:
                    with self.lease.cut:
                        await self.finish.wait()
            except RejectedError as error:
                self.rejected = error
        self.ended = True


@asynccontextmanager
async def clients(made: Bench, *profiles: str) -> AsyncIterator[list[Client]]:
    async with anyio.create_task_group() as tasks:
        made_clients = [Client(made, profile) for profile in profiles]
        for client in made_clients:
            tasks.start_soon(client.run)
            await until(lambda: made.board.queue().waiting or made.board.queue().in_flight)
            await anyio.lowlevel.checkpoint()
        yield made_clients
        for client in made_clients:
            client.finish.set()
