"""llama-swap's keys at the top of the file that settings of mtpd stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.compat import macros
from mtpd.compat.remarks import Kind, as_table, is_whole
from mtpd.compat.swap_keys import is_empty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.compat.remarks import Import, Path

__all__ = ["put_own_keys"]

_LEAST_READY_S = 15
"""llama-swap waits for a health check at least so long."""
_PRELOAD: Path = ("hooks", "on_startup", "preload")


def put_own_keys(top: Mapping[str, object], lines: Mapping[Path, int], into: Import) -> None:
    """Translate them.

    Args:
        top: The file; its models must have been translated.
        lines: Line by path.
        into: Takes the values.
    """
    _Keys(top, lines, into).put()


class _Keys:
    def __init__(self, top: Mapping[str, object], lines: Mapping[Path, int], into: Import) -> None:
        self.top, self.lines, self.into = top, lines, into

    def put(self) -> None:
        self.seconds("globalTTL", ("server", "ttl_s"))
        self.seconds("unloadTimeout", ("engine", "stop_timeout_s"), none=True)
        self.seconds("healthCheckTimeout", ("engine", "ready_timeout_s"), low=_LEAST_READY_S)
        if self.top.get("includeAliasesInList") is True:
            key: Path = ("includeAliasesInList",)
            self.into.put(("server", "list_aliases"), value=True, line=self.line(key), key=key)
        self.hooks()

    def line(self, key: Path) -> int:
        return self.lines.get(key, self.lines.get(key[:1], 1))

    def seconds(self, name: str, at: tuple[str, ...], *, none: bool = False, low: int = 0) -> None:
        """Put whole seconds, at least ``low``; with ``none`` 0 means that nothing is set."""
        value, key = self.top.get(name), (name,)
        if value is None or (none and value == 0):
            return
        if not is_whole(value) or value < 0:
            message = f"must be a whole number of at least 0, not {value!r}"
            self.into.fault(self.line(key), key, message)
            return
        self.into.put(at, max(low, value), line=self.line(key), key=key)

    def hooks(self) -> None:
        for name, hook in as_table(self.top.get("hooks")).items():
            for what, value in as_table(hook).items() or [("", hook)]:
                key = ("hooks", name, what) if what else ("hooks", name)
                if key != _PRELOAD and not is_empty(value):
                    self.into.remark(
                        Kind.NOT_HONOURED, self.line(key), key, "this key is not known"
                    )
        startup = as_table(as_table(self.top.get("hooks")).get("on_startup"))
        listed = startup.get("preload")
        if not isinstance(listed, list | None):
            self.into.fault(self.line(_PRELOAD), _PRELOAD, "must be a list of models")
            return
        self.preload([macros.plain(name) for name in listed or []])

    def preload(self, names: list[str]) -> None:
        """Put those that are served; llama-swap passes over names that it does not know."""
        known = {alias: alias for alias in self.aliases()} | self.into.names
        found: list[str] = []
        for number, name in enumerate(names):
            key = (*_PRELOAD, number)
            if name not in known:
                message = f"there is no model {name!r} to load"
                self.into.remark(Kind.NOT_HONOURED, self.line(key), key, message)
                continue
            self.into.lines["server", "preload", len(found)] = self.line(key)
            self.into.keys["server", "preload", len(found)] = key
            found.append(known[name])
        if found:
            line = self.line(_PRELOAD)
            self.into.put(("server", "preload"), found, line=line, key=_PRELOAD)

    def aliases(self) -> list[str]:
        """Every alias of a model that was translated."""
        models = as_table(self.into.tree.get("models"))
        listed = [as_table(table).get("aliases") for table in models.values()]
        return [one for names in listed if isinstance(names, list) for one in names]
