"""One model's table in llama-swap's configuration: its texts without macros, its places."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mtpd.compat import commands, macros
from mtpd.compat.remarks import Kind, as_table, is_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.compat.macros import Macros
    from mtpd.compat.remarks import Import, Path
    from mtpd.compat.yaml_text import Document

__all__ = ["Given", "Shared", "SwapTable"]

_TEXTS = {"name": "title", "description": "description", "useModelName": "upstream_model"}


@dataclass(frozen=True, slots=True)
class Given:
    """A value with its place in the file."""

    value: str
    line: int
    key: Path


@dataclass(slots=True, kw_only=True)
class Shared:
    """What concerns all models of a file.

    Attributes:
        document: The file.
        into: Takes what is translated.
        macros: Those of the file.
        next_port: What the next ``${PORT}`` stands for.
        programs: llama-server by model that has one.
        environment: Variables for engines, by name and model.
    """

    document: Document
    into: Import
    macros: Macros
    next_port: int
    programs: dict[str, Given] = field(default_factory=dict)
    environment: dict[str, dict[str, Given]] = field(default_factory=dict)


class SwapTable:
    """Reads the keys of one model.

    Attributes:
        name: As the file has it.
        at: Key path in the file.
        macros: Those that its texts may use.
    """

    def __init__(self, name: str, table: Mapping[str, object], shared: Shared) -> None:
        self.name = name
        self.table = table
        self.shared = shared
        self.into = shared.into
        self.at: Path = ("models", name)
        self.macros = self.all_macros()

    def line(self, *below: str | int) -> int:
        """Where a key is written, or else the model."""
        lines = self.shared.document.lines
        return lines.get((*self.at, *below), lines.get(self.at, 1))

    def tell(self, kind: Kind, message: str, *below: str | int) -> None:
        """Tell something about a key."""
        self.into.remark(kind, self.line(*below), (*self.at, *below), message)

    def fault(self, message: str, *below: str | int) -> None:
        """Refuse the file for a key."""
        self.into.fault(self.line(*below), (*self.at, *below), message)

    def set(self, at: tuple[str, ...], value: object, key: str) -> None:
        """Put a value of the profile that a key of the model gives."""
        self.into.put(at, value, line=self.line(key), key=(*self.at, key))

    def all_macros(self) -> Macros:
        """The name, the file's macros, the model's own over them (internal/config/load.go)."""
        merged: dict[str, object] = {"MODEL_ID": self.name, **dict(self.shared.macros)}
        own = as_table(self.table.get("macros"))
        for name, value in own.items():
            wrong = macros.name_fault(name, value)
            if wrong is not None:
                self.fault(wrong, "macros", name)
            merged[name] = value
        return tuple(merged.items())

    def expand(self, value: object, *below: str | int, keep: tuple[str, ...] = ()) -> object:
        """A value without macros; a fault where one is unknown."""
        try:
            expanded = macros.expand(value, self.macros)
        except macros.TooLongError:
            self.fault(f"grows beyond {macros.MAX_TEXT} characters with its macros", *below)
            return ""
        for name in dict.fromkeys(macros.left_over(expanded)):
            if name not in keep:
                self.fault(
                    f"there is no macro ${{{name}}}: define it under macros",
                    *below,
                )
        return expanded

    def text(self, key: str, default: str = "", keep: tuple[str, ...] = ()) -> str:
        """A text of the model without macros."""
        value = self.table.get(key, default)
        if isinstance(value, dict | list):
            self.fault("must be text", key)
            return ""
        text = macros.plain(value)
        if key in {"cmd", "cmdStop"}:
            text = commands.without_comments(text)
        return macros.plain(self.expand(text, key, keep=keep))

    def whole(self, key: str, *, least: int) -> int | None:
        """A whole number, None where the key is left out; ``least`` may stand for "not set"."""
        value = self.table.get(key)
        if value is None:
            return None
        if is_whole(value) and value >= least:
            return value
        self.fault(f"must be a whole number of at least {least}, not {value!r}", key)
        return None

    def put_plain(self, at: tuple[str, ...]) -> None:
        """Put what means the same in a profile under another name."""
        for key, setting in _TEXTS.items():
            if value := self.text(key).strip():
                self.set((*at, setting), value, key)
        if self.flag("unlisted"):
            self.set((*at, "unlisted"), value=True, key="unlisted")
        ttl_s = self.whole("ttl", least=-1)
        if ttl_s is not None and ttl_s >= 0:
            self.set((*at, "ttl_s"), ttl_s, "ttl")
        if limit := self.whole("concurrencyLimit", least=0):
            self.set((*at, "concurrency_limit"), limit, "concurrencyLimit")

    def flag(self, key: str) -> bool:
        """A switch that is off where it is left out."""
        value = self.table.get(key)
        if not isinstance(value, bool | None):
            self.fault(f"must be true or false, not {value!r}", key)
        return value is True
