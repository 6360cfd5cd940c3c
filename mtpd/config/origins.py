"""Telling every configured value with the place it comes from."""

from __future__ import annotations

import enum
import json
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from mtpd.config.locate import Path, dotted
from mtpd.config.model import DrafterConfig, Filters, ServerConfig
from mtpd.views import ConfigValueView

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mtpd.config.layers import Origin
    from mtpd.config.model import Config
    from mtpd.views import Json

__all__ = ["describe_origins", "leaves", "told"]


def describe_origins(config: Config) -> tuple[ConfigValueView, ...]:
    """Every value with its key as it is written in ``mtpd.toml``, in reading order."""
    views = []
    for path, value in leaves(config):
        key = dotted(path)
        origin = config.origins.get(key, "default")
        views.append(ConfigValueView(key=key, value=value, origin=origin))
    return tuple(views)


def told(
    found: Mapping[str, Origin | None], foreign: str | None
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Where each key stands, and what it is called there if that is a foreign file."""
    places = {key: "default" if at is None else str(at) for key, at in found.items()}
    written = {
        key: dotted(at.path)
        for key, at in found.items()
        if at is not None and at.file == foreign and dotted(at.path) != key
    }
    return MappingProxyType(places), MappingProxyType(written)


def leaves(config: Config) -> Iterator[tuple[Path, Json]]:
    """Key path and value of everything configured; workload texts are left out."""
    for section in ("server", "engine", "budget", "tuning"):
        yield from _table((section,), getattr(config, section))
    for name, pool in config.pools.items():
        yield from _table(("pools", name), pool)
    for name, group in config.groups.items():
        yield from _table(("groups", name), group)
    for name, profile in config.profiles.items():
        yield from _table(("models", name), profile)
    if config.hardware is not None:
        yield from _table(("hardware",), config.hardware)


def _table(path: Path, table: object) -> Iterator[tuple[Path, Json]]:
    if isinstance(table, ServerConfig):
        yield (*path, "listen"), table.listen
    if not is_dataclass(table):
        return
    for field in fields(table):
        value = getattr(table, field.name)
        here = (*path, field.name)
        if field.name in {"name", "listen_host", "listen_port", "ngram", "is_model"}:
            continue
        if field.name in {"extra_env", "env"}:
            yield from _variables(here, value)
        elif isinstance(table, DrafterConfig) and field.name == "kind":
            yield here, table.word
        elif field.name == "opaque":
            yield from _table(path, value)
        elif isinstance(value, Filters):
            yield from _filters(here, value)
        elif is_dataclass(value):
            yield from _table(here, value)
        else:
            yield here, _plain(value)


def _filters(path: Path, filters: Filters) -> Iterator[tuple[Path, Json]]:
    yield (*path, "strip"), [".".join(one) for one in filters.strip]
    tables = (("set",), filters.set), *((("set_by_name", n), s) for n, s in filters.by_name)
    for below, settings in tables:
        for setting in settings:
            key = ".".join(setting.path) + ("?" if setting.soft else "")
            yield from _below((*path, *below, key), json.loads(setting.value))


def _below(path: Path, value: Json) -> Iterator[tuple[Path, Json]]:
    """The values of a table, as their places are kept."""
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from _below((*path, key), one)
    else:
        yield path, value


def _variables(path: Path, values: Iterable[tuple[str, str]]) -> Iterator[tuple[Path, Json]]:
    """Variables of an engine, and of other programs, which may hold what is secret."""
    for name, text in values:
        yield (*path, name), text if path[-1] == "extra_env" else "(not shown)"


def _plain(value: object) -> Json:
    if isinstance(value, enum.StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(type(value))
