"""llama-swap's groups and matrix: which models run at once.

Groups become ``[groups.NAME]``, which mean the same; a matrix is told as not honoured. What
llama-swap refuses is a fault here too (internal/config/load.go).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mtpd.compat.remarks import Kind, as_table
from mtpd.compat.swap_keys import is_empty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.compat.remarks import Import, Path

__all__ = ["put_routing"]

_MATRIX = (
    "sets of models are not solved for: groups say what may run together, and what fits is"
    " decided by bytes; see [groups.NAME]"
)
_REFUSED = re.compile(r"[^A-Za-z0-9._+:-]+")
_LONGEST = 90
_RULES = ("swap", "exclusive", "persistent")


def put_routing(document: Mapping[str, object], lines: Mapping[Path, int], into: Import) -> None:
    """Translate the groups; tell what of the matrix and the scheduler is not honoured.

    Args:
        document: The whole file; its models were translated already.
        lines: Line by path.
        into: Takes groups, faults and remarks.
    """
    _Routing(document, lines, into).put()


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

    def put(self) -> None:
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
            self.lost(("matrix",), _MATRIX)
        if not is_empty(settings.get("matrix")):
            self.lost((*at, "matrix"), _MATRIX)
        self.groups(("groups",), as_table(self.document.get("groups")))
        self.groups((*at, "groups"), as_table(settings.get("groups")))
        if not is_empty(routing.get("scheduler")):
            self.lost(("routing", "scheduler"), "requests are served by mtpd's own rule of turns")

    def groups(self, at: Path, groups: Mapping[str, object]) -> None:
        owner: dict[str, str] = {}
        for name, group in groups.items():
            path = (*at, name)
            table = as_table(group)
            members = self.members(path, table, owner, name)
            if not members:
                continue  # nothing goes by its rules
            here = ("groups", self.group_name(name))
            line = self.lines.get(path, 1)
            self.into.put((*here, "members"), members, line=line, key=(*path, "members"))
            for rule in _RULES:
                if rule in table:
                    line = self.lines.get((*path, rule), 1)
                    self.into.put((*here, rule), table[rule], line=line, key=(*path, rule))

    def members(
        self, path: Path, group: Mapping[str, object], owner: dict[str, str], name: str
    ) -> list[str]:
        """The profiles of the members that are served; a member of two groups is a fault."""
        listed = group.get("members")
        names = [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []
        models = as_table(self.document.get("models"))
        for number, member in enumerate(names):
            here = (*path, "members", number)
            if member in owner:
                self.fault(here, f"{member!r} is already in the group {owner[member]!r}")
            elif member not in models:
                self.lost(here, f"there is no model {member!r}")
            owner[member] = name
        served = as_table(self.into.tree.get("models"))
        found = [self.into.names.get(one, "") for one in names]
        return [profile for profile in found if profile in served]

    def group_name(self, name: str) -> str:
        """A name that a group may have here; llama-swap takes any."""
        taken = as_table(self.into.tree.get("groups"))
        made = base = _REFUSED.sub("-", name).strip("._+:-")[:_LONGEST] or "group"
        count = 1
        while made in taken:
            count += 1
            made = f"{base}-{count}"
        return made
