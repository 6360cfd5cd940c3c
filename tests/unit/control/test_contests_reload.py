"""The members of a pool side by side, while the configuration is read again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mtpd.config.live import LiveConfig
from mtpd.config.model import Config, Pool
from mtpd.control.choices import Choices
from mtpd.control.contests import Contests
from mtpd.control.memory import forecast
from mtpd.store.db import Database
from mtpd.store.journal import Journal
from mtpd.types import NotApplicable
from tests.fakes.clock import FakeClock
from tests.unit.control.made import profile
from tuner.types import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mtpd.config.model import Profile
    from mtpd.control.contests import Contest
    from mtpd.control.memory import MemoryForecast
    from mtpd.control.standing import Standing

PROFILES = {name: profile(name) for name in ("a", "b", "c")}
WHOLE = Config(
    profiles=PROFILES,
    pools={
        "p": Pool(name="p", members=("a", "b")),
        "q": Pool(name="q", members=("a", "c")),
    },
)


class _Nothing:
    async def standing(self, decision_id: int) -> Standing | None:
        return None


async def _memory(one: Profile) -> MemoryForecast:
    device = NotApplicable("there is no device")
    return forecast(one, Unknown("the file is no model"), device, margin_bytes=None)


def _without(config: Config, name: str) -> Config:
    """As a reload of a file that lacks a model and its mentions leaves it."""
    return replace(
        config,
        profiles={n: one for n, one in config.profiles.items() if n != name},
        pools={
            n: replace(one, members=tuple(m for m in one.members if m != name))
            for n, one in config.pools.items()
        },
    )


def _unmeasured(found: tuple[Contest, ...]) -> dict[str, list[str]]:
    return {one.pool.name: [arm.profile for arm in one.unmeasured] for one in found}


async def _looks(
    folder: Path, config: LiveConfig, digest: Callable[[Profile], str]
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Two comparisons, and between them a reload that takes ``b`` away."""
    clock, running = FakeClock(), PROFILES["a"].arm(0)
    async with await Database.open(folder / "mtpd.sqlite3", clock) as db:
        contests = Contests(
            config=config,
            choices=Choices(config),
            digest=digest,
            memory=_memory,
            misfit=lambda _profile, _arm: None,
            journal=Journal(db=db, clock=clock),
            recorder=_Nothing(),
            clock=clock,
        )
        first = _unmeasured(await contests.of(PROFILES["a"], running))
        config.replace(_without(config.now, "b"))
        return first, _unmeasured(await contests.of(PROFILES["a"], running))


async def test_a_member_that_a_reload_took_away_is_not_compared_any_more(tmp_path: Path) -> None:
    before, after = await _looks(tmp_path, LiveConfig(WHOLE), lambda _: "0" * 64)
    assert before == {"p": ["a", "b"], "q": ["a", "c"]}
    assert after == {"p": ["a"], "q": ["a", "c"]}


async def test_a_reload_in_the_middle_of_a_comparison_ends_nothing(tmp_path: Path) -> None:
    config = LiveConfig(WHOLE)

    def digest(_: Profile) -> str:
        if "c" in config.profiles:
            config.replace(_without(config.now, "c"))
        return "0" * 64

    before, after = await _looks(tmp_path, config, digest)
    assert before == {"p": ["a", "b"], "q": ["a", "c"]}, "in the configuration of its beginning"
    assert after == {"p": ["a"], "q": ["a"]}
