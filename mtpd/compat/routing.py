"""llama-swap's groups and matrix: which models run at once.

mtpd runs one engine per device, so a group that swaps and is exclusive is honoured as it
is, and nothing else is. What llama-swap refuses is a fault here too (internal/config/load.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.compat.remarks import Kind, as_table
from mtpd.compat.swap_keys import is_empty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.compat.remarks import Import, Path

__all__ = ["check_routing"]

_ONE_ENGINE = "one engine runs per device here, so a model that is asked for ends the other"


def check_routing(document: Mapping[str, object], lines: Mapping[Path, int], into: Import) -> None:
    """Tell what of the groups, the matrix and the scheduler is not honoured.

    Args:
        document: The whole file; ``models`` names the models.
        lines: Line by path.
        into: Takes faults and remarks.
    """
    _Routing(document, lines, into).check()


class _Routing:
    def __init__(
        self, document: Mapping[str, object], lines: Mapping[Path, int], into: Import
    ) -> None:
        self.document = document
        self.lines = lines
        self.into = into

    def fault(self, path: Path, message: str) -> None:
        self.into.fault(self.lines.get(path, 1), path, message)

    def lost(self, path: Path, message: str) -> None:
        self.into.remark(Kind.NOT_HONOURED, self.lines.get(path, 1), path, message)

    def check(self) -> None:
        routing = as_table(self.document.get("routing"))
        router = as_table(routing.get("router"))
        settings = as_table(router.get("settings"))
        old = [key for key in ("groups", "matrix") if not is_empty(self.document.get(key))]
        new = [key for key in ("groups", "matrix") if not is_empty(settings.get(key))]
        if len(old) > 1:
            self.fault(("matrix",), "groups and matrix exclude each other")
        if old and (new or not is_empty(router.get("use"))):
            self.fault(("routing",), f"routing.router and {old[0]} exclude each other")
        at: Path = ("routing", "router", "settings")
        if not is_empty(self.document.get("matrix")):
            self.lost(("matrix",), _ONE_ENGINE)
        if not is_empty(settings.get("matrix")):
            self.lost((*at, "matrix"), _ONE_ENGINE)
        self.groups(("groups",), as_table(self.document.get("groups")))
        self.groups((*at, "groups"), as_table(settings.get("groups")))
        if not is_empty(routing.get("scheduler")):
            self.lost(("routing", "scheduler"), "requests are served by mtpd's own rule of turns")

    def groups(self, at: Path, groups: Mapping[str, object]) -> None:
        members: dict[str, str] = {}
        for name, group in groups.items():
            path = (*at, name)
            table = as_table(group)
            known = self.members(path, table, members, name)
            if table.get("swap") is False and known > 1:
                self.lost((*path, "swap"), _ONE_ENGINE)
            if table.get("exclusive") is False and len(groups) > 1:
                self.lost((*path, "exclusive"), _ONE_ENGINE)
            if table.get("persistent") is True:
                self.lost((*path, "persistent"), _ONE_ENGINE)

    def members(
        self, path: Path, group: Mapping[str, object], seen: dict[str, str], name: str
    ) -> int:
        """How many members a group has; a member of two groups is a fault."""
        listed = group.get("members")
        names = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
        models = as_table(self.document.get("models"))
        for number, member in enumerate(names):
            here = (*path, "members", number)
            if member in seen:
                self.fault(here, f"{member!r} is already in the group {seen[member]!r}")
            elif member not in models:
                self.lost(here, f"there is no model {member!r}")
            seen[member] = name
        return len(names)
