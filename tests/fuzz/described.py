"""The description of the API as a fuzzer takes it: strict, and with names that there are."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from tests.unit.api.described import STRICT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["described"]

_STREAMS = {"/mtpd/v1/events", "/mtpd/v1/logs"}
"""These need not end, so their answers are held against the description elsewhere."""


def described(names: Mapping[str, list[str]]) -> Any:
    """The whole description but the streams.

    Args:
        names: What a member or parameter of this name is often given, e.g. ``model``; what
            its schema allows beside stays allowed.
    """
    made = copy.deepcopy(STRICT)
    made["servers"] = [{"url": "/"}]
    for path in _STREAMS:
        del made["paths"][path]
    for owner, name in _places(made):
        if name in names:
            owner[name] = {"anyOf": [{"enum": names[name]}, owner[name]]}
    return made


def _places(made: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Where the schemas of members of requests and of parameters stand, with their names."""
    for kind, schema in made["components"]["schemas"].items():
        if kind.endswith("Body"):
            for name in schema["properties"]:
                yield schema["properties"], name
    for item in made["paths"].values():
        for operation in item.values():
            for parameter in operation.get("parameters", ()):
                slot = {parameter["name"]: parameter["schema"]}
                yield slot, parameter["name"]
                parameter["schema"] = slot[parameter["name"]]
