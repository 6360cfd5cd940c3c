"""Which member of a pool answers a request, with the tags that it requires. Pure.

The rule: what serves and meets the request goes on serving. A request never swaps one
member for another that is merely better; the pool's choice is loaded when no member
that serves will do, and by whoever orders it (tune, switch, preload).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mtpd.config.model import Offload
from mtpd.control.deciding import choose_member
from mtpd.proxy.route import Asked, Meaning, PoolMeaning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mtpd.config.model import Config, Pool, Profile
    from mtpd.control.choices import Choice, Choices
    from mtpd.control.deciding import PoolInputs
    from mtpd.engine_views import EngineView
    from tuner.candidates import Candidate
    from tuner.types import Arm, Decision

__all__ = ["Comparison", "Field", "meaning", "qualified"]

SERVING = frozenset({"spawning", "loading", "probing", "ready"})
"""States of an engine that answers, or is about to."""

OUTSIDE = frozenset({"evicted", "spilled"})
REMEMBERED = 256
"""Combinations of tags whose decision is kept; a pool has few."""


@dataclass(slots=True)
class Comparison:
    """The members of a pool as they were measured together, to choose among some of them.

    Attributes:
        inputs: What was asked when the pool's model was chosen; its members are not used.
        candidates: What was measured, by profile.
        files: What told each model's files from others then.
    """

    inputs: PoolInputs
    candidates: Mapping[str, Candidate]
    files: Mapping[str, object]
    _known: dict[tuple[object, ...], Decision] = field(default_factory=dict)

    @classmethod
    def of(cls, inputs: PoolInputs, files: Callable[[str], object]) -> Comparison:
        """Of a decision's inputs, while the files are still those that were measured."""
        candidates = {member.arm.profile: member.candidate() for member in inputs.members}
        asked = replace(inputs, members=())
        return cls(asked, candidates, {name: files(name) for name in candidates})

    def best(self, members: Sequence[Profile], tags: frozenset[str], incumbent: Arm) -> Decision:
        """The decision among these members by the pool's rules, as if only they were in it."""
        key = (tags, incumbent, tuple((one.name, one.tags) for one in members))
        if key not in self._known:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            rows = [
                replace(self.candidates[one.name], tags=frozenset(one.tags))
                for one in members
                if one.name in self.candidates
            ]
            asked = replace(self.inputs, require=self.inputs.require | tags, incumbent=incumbent)
            self._known[key] = choose_member(asked, rows)
        return self._known[key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Models among which a request may be answered, in the order of preference among ties.

    Attributes:
        name: What clients ask for.
        members: Those that meet what the pool itself requires.
        accept_offload: Whether one that lies partly outside device memory will do.
        bounded: Whether the quality of a member decides if it may answer at all, so that
            only the one that was chosen is known to do.
    """

    name: str
    members: tuple[Profile, ...]
    accept_offload: bool = False
    bounded: bool = False

    @classmethod
    def of(cls, pool: Pool, config: Config) -> Field:
        """The field of a pool; all members where none meets the pool's requirements."""
        members = tuple(config.profiles[name] for name in pool.members)
        return cls(
            name=pool.name,
            members=tuple(one for one in members if qualified(one, pool)) or members,
            accept_offload=pool.offload is Offload.ACCEPT,
            bounded=pool.quality_bound is not None,
        )

    @property
    def tags(self) -> tuple[str, ...]:
        """Every tag that a member has, sorted."""
        return tuple(sorted({tag for one in self.members for tag in one.tags}))

    def with_tags(self, tags: frozenset[str]) -> tuple[Profile, ...]:
        """The members that have all of these tags."""
        return tuple(one for one in self.members if tags <= set(one.tags))


def qualified(profile: Profile, pool: Pool) -> bool:
    """Whether a member meets what its pool requires of the configuration alone."""
    if not set(pool.require_tags) <= set(profile.tags):
        return False
    return pool.min_context is None or profile.context // profile.slots >= pool.min_context


def meaning(one: Field, choices: Choices, engines: Iterable[EngineView]) -> PoolMeaning:
    """What the name of a field that has members means now, with and without tags."""
    running = tuple(engines)

    def among(tags: frozenset[str]) -> Meaning | None:
        choice = choices.among(one, tags)
        return None if choice is None else _now(one, tags, choice, running)

    plain = among(frozenset())
    assert plain is not None  # noqa: S101 - every member has all of no tags
    return PoolMeaning(plain, one.tags, among)


def _now(
    one: Field, tags: frozenset[str], choice: Choice, engines: Sequence[EngineView]
) -> Meaning:
    """The chosen member, unless it does not serve and another one does that meets the request."""
    chosen, asked = choice.arm.profile, Asked(one.name, tuple(sorted(tags)))
    able = {member.name for member in one.with_tags(tags)} - {chosen}
    serving = {engine.profile: engine for engine in engines if engine.state in SERVING}
    held = [serving[name] for name in sorted(able & serving.keys())]
    if not one.accept_offload:
        held = [engine for engine in held if engine.residency.state not in OUTSIDE]
    if chosen in serving or one.bounded or not held:
        return Meaning(chosen, choice.reason, asked)
    kept = held[0].profile
    required = f", with the tag {' and '.join(sorted(tags))}" if tags else ""
    return Meaning(
        kept,
        f"{kept} serves and is of {one.name}{required}: a request does not swap it for {chosen},"
        f" which is loaded when nothing of {one.name} serves ({choice.reason})",
        asked,
    )
