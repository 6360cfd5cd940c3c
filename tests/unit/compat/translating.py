"""Translating texts, and picking what was told about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mtpd.compat import llama_swap, preset_ini
from mtpd.compat.remarks import Kind
from mtpd.config.locate import dotted
from mtpd.config.model import may_set_for_engine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.compat.remarks import Import

__all__ = ["faults", "ini", "model", "one_model", "profile", "swap", "told"]


def swap(text: str, environment: Mapping[str, str] | None = None) -> Import:
    """A llama-swap file."""
    return llama_swap.translate(text, environment=environment or {}, may_set=may_set_for_engine)


def ini(text: str) -> Import:
    """A preset file."""
    return preset_ini.translate(text)


def one_model(flags: str, more: str = "") -> Import:
    """A llama-swap file with one model ``m`` of these flags, and more keys of it."""
    text = f"models:\n  m:\n    cmd: llama-server --port ${{PORT}} -m /m.gguf {flags}\n{more}"
    return swap(text)


def profile(made: Import, name: str = "m") -> dict[str, Any]:
    """The profile of a model; the file may have no fault."""
    assert made.faults == []
    models: Any = made.tree["models"]
    table: dict[str, Any] = models[name]
    return table


def model(flags: str) -> dict[str, Any]:
    """The profile that these flags make."""
    return profile(one_model(flags))


def told(made: Import, kind: Kind = Kind.NOT_HONOURED) -> list[str]:
    """The remarks of a kind as ``LINE: KEY: MESSAGE``."""
    return [
        f"{one.line}: {dotted(one.key)}: {one.message}"
        for one in made.remarks_of("f")
        if one.kind is kind
    ]


def faults(made: Import) -> list[str]:
    """The faults as ``LINE: KEY: MESSAGE``."""
    return [f"{one.line}: {dotted(one.key)}: {one.message}" for one in made.faults]
