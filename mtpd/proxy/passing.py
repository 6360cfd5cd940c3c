"""``/upstream/{model}/...``: which model and which of its engine's paths is meant; pure.

Model names may contain slashes, so the longest name that fits wins, as in llama-swap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from mtpd.proxy.endpoints import READS, Endpoint, endpoint_of
from mtpd.proxy.route import EXACTLY, Asked, Meaning, UnknownModel

if TYPE_CHECKING:
    from mtpd.proxy.route import Names

__all__ = ["PREFIX", "Passed", "open_to_all", "split"]

PREFIX = "/upstream/"


@dataclass(frozen=True, slots=True)
class Passed:
    """What was asked for.

    Attributes:
        profile: Of the engine.
        target: Path as the engine gets it, without a query; "" where the slash behind the
            model's name is missing.
        why: Why this profile, in one sentence.
        asked: By which name.
    """

    profile: str
    target: str
    why: str = ""
    asked: Asked = EXACTLY


def split(raw_path: str, names: Names) -> Passed | UnknownModel:
    """The model and the rest of a still encoded path."""
    parts = raw_path.removeprefix(PREFIX).split("/")
    for count in range(len(parts), 0, -1):
        name = unquote("/".join(parts[:count]))
        found = names.meaning(name) if name else None
        if isinstance(found, Meaning):
            rest = parts[count:]
            target = "/" + "/".join(rest) if rest else ""
            return Passed(found.profile, target, found.why, found.asked)
    found = names.meaning(unquote(parts[0]))
    return found if isinstance(found, UnknownModel) else names.unknown("")


def open_to_all(method: str, target: str) -> Endpoint | None:
    """The endpoint if any client may use it, None if only the daemon's own user may.

    A target with dots or escapes is equal to none of the endpoints, so it is not open.
    """
    if method == "POST":
        return endpoint_of(target)
    if method == "GET" and target in READS:
        return Endpoint(target, target, light=True)
    return None
