"""From a request body to the profile that must answer it; pure.

Covers the model name and the stream flag; what a body may hold is ``mtpd.proxy.policy``'s.
The body is not changed: llama-server ignores ``model``, so what the client sent is what the
engine gets. Only where the profile names another for its engine (``upstream_model``), has
``filters``, or a number of tokens is configured, are those values replaced, added or taken out.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from mtpd.config.serving import BodyLimits
from mtpd.config.tables import Filters
from mtpd.proxy.endpoints import Endpoint
from mtpd.proxy.filters import completed, rewritten, stripped
from mtpd.proxy.json_body import BadBody, parse
from mtpd.proxy.policy import capped, violation
from mtpd.proxy.rename import renamed
from mtpd.proxy.traits import Traits, traits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "EXACTLY",
    "Asked",
    "BadBody",
    "Meaning",
    "Names",
    "PoolMeaning",
    "Route",
    "Routed",
    "UnknownModel",
    "route",
]

AUTO = "auto"
"""The model name that leaves the choice to the daemon."""

TAGS_BEHIND = ":"
"""Stands between a pool's name and the tags that a request requires, as in auto:uncensored."""

DEFAULT_POOL = "default"
PLAIN = Endpoint("", "")
USUAL = BodyLimits()
NO_FILTERS = Filters()


@dataclass(frozen=True, slots=True)
class Asked:
    """How a request named its model.

    Attributes:
        pool: The pool, or "auto" where no pool is meant by that; "" for a model's own name.
        tags: What was required behind it, sorted.
    """

    pool: str = ""
    tags: tuple[str, ...] = ()


EXACTLY = Asked()
"""By the model's own name, or an alias of it."""


@dataclass(frozen=True, slots=True)
class Routed:
    """The profile that answers, and what the client wants.

    Attributes:
        profile: Name of the profile.
        stream: Whether the client asked for a stream.
        body: The bytes for the engine.
        traits: What the body tells of the request's class.
        why: Why this profile, in one sentence.
        asked: By which name.
    """

    profile: str
    stream: bool
    body: bytes = field(repr=False)
    traits: Traits = field(default_factory=Traits)
    why: str = ""
    asked: Asked = EXACTLY


@dataclass(frozen=True, slots=True)
class UnknownModel:
    """No profile, alias or pool has this name.

    Attributes:
        name: What was asked for, or "" if the request named nothing and nothing is default.
        known: Every name that would have been understood, sorted.
        close: The known names that look like it, best first.
        removed: Whether it was a name before the configuration was read again.
        pool: The pool, if only the tags behind its name are not met.
        tags: Those tags, sorted.
        known_tags: Every tag that a model of the pool has, sorted.
    """

    name: str
    known: tuple[str, ...]
    close: tuple[str, ...]
    removed: bool = False
    pool: str | None = None
    tags: tuple[str, ...] = ()
    known_tags: tuple[str, ...] = ()


Route = Routed | UnknownModel | BadBody


@dataclass(frozen=True, slots=True)
class Meaning:
    """The profile that a name leads to at this moment, why, in one sentence, and the name."""

    profile: str
    why: str = ""
    asked: Asked = EXACTLY


def _none_of_them(_tags: frozenset[str]) -> Meaning | None:
    return None


@dataclass(frozen=True, slots=True)
class PoolMeaning:
    """What a pool means at this moment.

    Attributes:
        now: Who answers a request that requires no tags.
        tags: Every tag that a member has, sorted.
        among: Who answers one that requires some; None where no member has them all.
    """

    now: Meaning
    tags: tuple[str, ...] = ()
    among: Callable[[frozenset[str]], Meaning | None] = _none_of_them


def _no_reason(_profile: str) -> str:
    return ""


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What model names mean at this moment.

    Made for every request, so what a pool means and who serves is found out only for a name
    that asks for it.

    Attributes:
        profiles: Names and aliases of profiles, each with its profile.
        pools: Pools, each with how to find out what it means now.
        drafted: Pools that are one model each, compared with several drafters.
        variants: The profiles of those drafters.
        everything: What the tags behind ``auto`` choose from where no pool is the default.
        why: Why a profile that was asked for by its own name is served as it is.
        upstream: What the engine of a profile calls its model, where requests must say so.
        filters: What is changed in requests for a profile, where anything is.
        serving: Asks for the profile that is being served, if any is.
        removed: Names that meant something before the configuration was read again.
    """

    profiles: Mapping[str, str]
    pools: Mapping[str, Callable[[], PoolMeaning]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    drafted: frozenset[str] = frozenset()
    variants: frozenset[str] = frozenset()
    everything: Callable[[], PoolMeaning | None] = _nothing
    why: Callable[[str], str] = _no_reason
    upstream: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    filters: Mapping[str, Filters] = field(default_factory=lambda: MappingProxyType({}))
    serving: Callable[[], str | None] = _nothing
    removed: frozenset[str] = frozenset()

    @property
    def default_pool(self) -> str | None:
        """The pool that ``auto`` stands for: "default", else the only one, else None."""
        if DEFAULT_POOL in self.pools:
            return DEFAULT_POOL
        choices = [name for name in self.pools if name not in self.drafted]
        return choices[0] if len(choices) == 1 else None

    @property
    def default(self) -> Meaning | None:
        """Who answers a request that names no model.

        The only model; else who answers for the default pool; else who serves; else None.
        """
        alone = set(self.profiles.values()) - self.variants
        if len(alone) + len(self.drafted) == 1:
            return self._only(*alone, *self.drafted)
        if self.default_pool is not None:
            return self.pools[self.default_pool]().now
        serving = self.serving()
        if serving is None:
            return None
        return replace(self._exactly(serving), asked=Asked(AUTO))

    @property
    def known(self) -> tuple[str, ...]:
        """Every name that ``meaning`` understands, without the tags that may follow a pool."""
        return tuple(sorted({*self.profiles, *self.pools, AUTO}))

    def meaning(self, name: str) -> Meaning | UnknownModel:
        """What a name, alias, pool or "auto" leads to; a pool's name may be followed by tags.

        The exact name of a model or pool always means just that, whatever it contains.
        """
        if name in self.profiles:
            return self._exactly(self.profiles[name])
        if name in self.pools:
            return self.pools[name]().now
        if name in ("", AUTO):
            return self.default or self.unknown(name)
        return self._tagged(name) or self.unknown(name)

    def resolve(self, name: str) -> str | None:
        """The profile behind a name; None for one that is not understood."""
        found = self.meaning(name)
        return found.profile if isinstance(found, Meaning) else None

    def unknown(self, name: str) -> UnknownModel:
        """What is told about a name that ``meaning`` does not understand."""
        close = _close(name, self.known)
        return UnknownModel(name, self.known, close, removed=name in self.removed)

    def _only(self, name: str) -> Meaning:
        return self.pools[name]().now if name in self.drafted else self._exactly(name)

    def _exactly(self, profile: str) -> Meaning:
        return Meaning(profile, self.why(profile))

    def _tagged(self, name: str) -> Meaning | UnknownModel | None:
        """A pool, the longest that fits, with tags behind it; None if there is no such pool."""
        for at in range(len(name) - 1, 0, -1):
            if name[at] != TAGS_BEHIND:
                continue
            pool = name[:at]
            found = self._pool(pool)
            if found is None:
                continue
            tags = frozenset(filter(None, map(str.strip, name[at + 1 :].split(","))))
            meaning = found.among(tags) if tags <= set(found.tags) else None
            return meaning or replace(
                self.unknown(name), pool=pool, tags=tuple(sorted(tags)), known_tags=found.tags
            )
        return None

    def _pool(self, name: str) -> PoolMeaning | None:
        pool = self.default_pool if name == AUTO else name
        if pool is None:
            return self.everything()
        return self.pools[pool]() if pool in self.pools else None


def route(
    body: bytes, names: Names, endpoint: Endpoint = PLAIN, limits: BodyLimits = USUAL
) -> Route:
    """Read what a body asks for, if it may be asked; total.

    Args:
        body: As it came.
        names: What model names mean.
        endpoint: Where it came to.
        limits: What it may hold.
    """
    parsed = parse(body)
    if isinstance(parsed, BadBody):
        return parsed
    model = parsed.get("model")
    if model is None:
        model = ""
    if not isinstance(model, str):
        return BadBody("'model' must be a string", "model")
    found = names.meaning(model)
    if isinstance(found, UnknownModel):
        return found
    filters = names.filters.get(found.profile, NO_FILTERS)
    kept = stripped(parsed, filters)
    bad = violation(kept, limits)
    if bad is not None:
        return bad
    fields = completed(kept, filters, model)
    stream = fields.get("stream", False)
    if not isinstance(stream, bool | None):
        return BadBody("'stream' must be true or false", "stream")
    sent = capped(rewritten(body, parsed, fields), fields, endpoint, limits)
    name = names.upstream.get(found.profile)
    if name is not None:
        sent = renamed(sent, name)
    return Routed(found.profile, stream is True, sent, traits_of(fields), found.why, found.asked)


def _close(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Names that look like it; the comparison costs a product of lengths, so names are cut."""
    folded = {candidate.casefold(): candidate for candidate in known}
    found = difflib.get_close_matches(name[:200].casefold(), folded, n=3, cutoff=0.6)
    return tuple(folded[match] for match in found)
