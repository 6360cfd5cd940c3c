"""From a request body to the profile that must answer it; pure.

Covers the model name and the stream flag; what a body may hold is ``mtpd.proxy.policy``'s.
The body is not changed: llama-server ignores ``model``, so what the client sent is what the
engine gets. Only where the profile names another for its engine (``upstream_model``), or a
number of tokens is configured, is that one value replaced or added.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from mtpd.config.serving import BodyLimits
from mtpd.proxy.endpoints import Endpoint
from mtpd.proxy.json_body import BadBody
from mtpd.proxy.policy import examine
from mtpd.proxy.rename import renamed
from mtpd.proxy.traits import Traits, traits_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "BadBody",
    "Names",
    "Route",
    "Routed",
    "UnknownModel",
    "route",
    "route_name",
]

AUTO = "auto"
"""The model name that leaves the choice to the daemon."""

DEFAULT_POOL = "default"
PLAIN = Endpoint("", "")
USUAL = BodyLimits()


@dataclass(frozen=True, slots=True)
class Routed:
    """The profile that answers, and what the client wants.

    Attributes:
        profile: Name of the profile.
        stream: Whether the client asked for a stream.
        body: The bytes for the engine.
        traits: What the body tells of the request's class.
    """

    profile: str
    stream: bool
    body: bytes = field(repr=False)
    traits: Traits = field(default_factory=Traits)


@dataclass(frozen=True, slots=True)
class UnknownModel:
    """No profile, alias or pool has this name.

    Attributes:
        name: What was asked for, or "" if the request named nothing and nothing is default.
        known: Every name that would have been understood, sorted.
        close: The known names that look like it, best first.
        removed: Whether it was a name before the configuration was read again.
    """

    name: str
    known: tuple[str, ...]
    close: tuple[str, ...]
    removed: bool = False


Route = Routed | UnknownModel | BadBody


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What model names mean at this moment.

    Attributes:
        profiles: Names and aliases of profiles, each with its profile.
        pools: Pools, each with the profile that is chosen for it now.
        upstream: What the engine of a profile calls its model, where requests must say so.
        serving: The profile that is being served, or None.
        removed: Names that meant something before the configuration was read again.
    """

    profiles: Mapping[str, str]
    pools: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    upstream: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    serving: str | None = None
    removed: frozenset[str] = frozenset()

    @property
    def default(self) -> str | None:
        """The profile of a request that names none.

        The only one; else the choice of the pool "default"; else the only pool's;
        else the one being served; else None.
        """
        distinct = set(self.profiles.values())
        if len(distinct) == 1:
            return next(iter(distinct))
        if DEFAULT_POOL in self.pools:
            return self.pools[DEFAULT_POOL]
        if len(self.pools) == 1:
            return next(iter(self.pools.values()))
        return self.serving

    @property
    def known(self) -> tuple[str, ...]:
        """Every name that ``resolve`` understands."""
        return tuple(sorted({*self.profiles, *self.pools, AUTO}))

    def resolve(self, name: str) -> str | None:
        """The profile behind a name, alias, pool or "auto"; None for an unknown name."""
        if name in self.profiles:
            return self.profiles[name]
        if name in self.pools:
            return self.pools[name]
        return self.default if name in ("", AUTO) else None

    def unknown(self, name: str) -> UnknownModel:
        """What is told about a name that ``resolve`` does not understand."""
        close = _close(name, self.known)
        return UnknownModel(name, self.known, close, removed=name in self.removed)


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
    examined = examine(body, endpoint, limits)
    if isinstance(examined, BadBody):
        return examined
    parsed = examined.fields
    model = parsed.get("model")
    if model is None:
        model = ""
    if not isinstance(model, str):
        return BadBody("'model' must be a string", "model")
    stream = parsed.get("stream", False)
    if not isinstance(stream, bool | None):
        return BadBody("'stream' must be true or false", "stream")
    profile = route_name(model, names)
    if isinstance(profile, UnknownModel):
        return profile
    name = names.upstream.get(profile)
    sent = examined.body if name is None else renamed(examined.body, name)
    return Routed(profile, stream is True, sent, traits_of(parsed))


def route_name(model: str, names: Names) -> str | UnknownModel:
    """The profile of a request that names its model outside a JSON body; "" for none."""
    profile = names.resolve(model)
    return names.unknown(model) if profile is None else profile


def _close(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Names that look like it; the comparison costs a product of lengths, so names are cut."""
    folded = {candidate.casefold(): candidate for candidate in known}
    found = difflib.get_close_matches(name[:200].casefold(), folded, n=3, cutoff=0.6)
    return tuple(folded[match] for match in found)
