"""The models of a world: their sizes, at which depth they evict, how they are started."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import anyio

from mtpd.config.model import Config, DrafterConfig, Group, Profile
from mtpd.errors import NotFoundError
from mtpd.types import Command, EngineKey, LaunchPlan, UnixEndpoint
from mtpd.units import MIB
from tests.faults.sim.card import CARD
from tests.faults.sim.child import Make, taken_mib
from tuner.types import Drafter

if TYPE_CHECKING:
    import random

    from tuner.types import Arm

__all__ = ["Models", "draw_models"]

LAYERS = (8, 16, 24, 40, 58)
MAX_DEPTH = 4
ABOVE_MIB = 64
"""How far the forecast of what a start takes lies above what it takes."""


@dataclass(frozen=True, slots=True)
class Models:
    """Passes for the planner of starts and for the one of memory.

    Attributes:
        config: Profiles and groups.
        layers: Of each model.
        evicts_at: From which depth a layer does not fit, whatever is free; None: never.
    """

    config: Config
    layers: MappingProxyType[str, int]
    evicts_at: MappingProxyType[str, int | None]

    def make(self, arm: Arm) -> Make:
        """What a start of an arm is."""
        limit = self.evicts_at[arm.profile]
        evicts = limit is not None and arm.depth >= limit
        return Make(arm.profile, arm.depth, self.layers[arm.profile], evicts)

    # The planner of starts ----------------------------------------------------------

    def plan(self, arm: Arm, *, fits: bool = False) -> LaunchPlan:
        del fits
        if arm.profile not in self.layers:
            msg = f"{arm.profile} is not configured"
            raise NotFoundError(msg)
        return LaunchPlan(
            key=EngineKey(CARD, arm.profile),
            arm=arm,
            command=Command(argv=self.make(arm).argv, env={}),
            endpoint=UnixEndpoint(f"/{arm.profile}.sock"),
            fingerprint=arm.profile,
            load_stall_s=30.0,
        )

    def digest(self, profile: Profile) -> str:
        return profile.name

    # The planner of memory ----------------------------------------------------------

    async def forecast(self, profile: Profile) -> None:
        del profile
        await anyio.lowlevel.checkpoint()

    def most_bytes(self, arm: Arm) -> int | None:
        return (taken_mib(self.make(arm)) + ABOVE_MIB) * MIB

    def certain(self, arm: Arm) -> bool:
        del arm
        return True


def draw_models(rng: random.Random) -> Models:
    """Draw what is configured."""
    names = ("a", "b", "c", "d")[: rng.randrange(1, 5)]
    profiles = {
        name: Profile(
            name=name,
            model=f"/{name}.gguf",
            slots=rng.choice((1, 1, 2, 4)),
            drafter=DrafterConfig(kind=Drafter.MTP, max_depth=MAX_DEPTH, depth=rng.randrange(3)),
        )
        for name in names
    }
    members = [name for name in names if rng.random() < 0.6]
    groups = {}
    if rng.random() < 0.5 and members:
        groups["g"] = Group(
            name="g",
            members=tuple(members),
            swap=rng.random() < 0.4,
            exclusive=rng.random() < 0.4,
            persistent=rng.random() < 0.2,
        )
    return Models(
        config=Config(profiles=profiles, groups=groups),
        layers=MappingProxyType({name: rng.choice(LAYERS) for name in names}),
        evicts_at=MappingProxyType({name: rng.choice((None, None, 2, 3, 4)) for name in names}),
    )
