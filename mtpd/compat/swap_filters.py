"""llama-swap's ``filters`` of a model: what is changed in the body of each request.

With its rules (internal/config/filters.go): names are split at commas, a key with ``?`` is
set only where a request has none, and what would change ``model`` is passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.compat import macros, parameters
from mtpd.compat.overlay import overlay, put_list
from mtpd.compat.remarks import Kind, as_table
from mtpd.compat.swap_keys import is_empty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.compat.swap_table import SwapTable

__all__ = ["names_of", "put_filters"]

_KEY = "filters"
_STRIP = ("stripParams", "strip_params")
_SET, _BY_ID = "setParams", "setParamsByID"


def put_filters(model: SwapTable, at: tuple[str, ...], aliases: list[str]) -> None:
    """Put the filters of a model.

    Args:
        model: The model.
        at: Where its profile is in ``Import.tree``.
        aliases: Its names beside the profile's.
    """
    given = model.table.get(_KEY)
    if not isinstance(given, dict | None):
        model.fault("must be a table", _KEY)
    table, to = as_table(given), (*at, "filters")
    for key, value in table.items():
        if key in _STRIP:
            _put_strip(model, to, key)
        elif key == _SET:
            _put_settings(model, (*to, "set"), value, _SET)
        elif key == _BY_ID:
            _put_by_name(model, to, value, {at[-1], *aliases})
        elif not is_empty(value):
            model.tell(Kind.NOT_HONOURED, "this key is not known", _KEY, key)


def _put_strip(model: SwapTable, to: tuple[str, ...], key: str) -> None:
    value = model.expand(as_table(model.table.get(_KEY)).get(key), _KEY, key)
    if isinstance(value, dict | list):
        model.fault("must be text: names with commas between them", _KEY, key)
        return
    names = [name.strip() for name in macros.plain(value).split(",")] if value is not None else []
    place = (model.line(_KEY, key), (*model.at, _KEY, key))
    kept = {name: place for name in names if name and _is_kept(model, name, _KEY, key)}
    if kept:
        put_list((*to, "strip"), kept, model.into)


def _put_by_name(model: SwapTable, to: tuple[str, ...], value: object, known: set[str]) -> None:
    if not isinstance(value, dict | None):
        model.fault("must be a table of names", _KEY, _BY_ID)
    for written, settings in as_table(value).items():
        name = macros.plain(model.expand(written, _KEY, _BY_ID, written))
        if name in known:  # another one cannot be asked for, which its alias has told
            _put_settings(model, (*to, "set_by_name", name), settings, _BY_ID, written)


def _put_settings(model: SwapTable, to: tuple[str, ...], value: object, *below: str) -> None:
    if not isinstance(value, dict | None):
        model.fault("must be a table of parameters", _KEY, *below)
    kept = {
        key: model.expand(one, _KEY, *below, key)
        for key, one in as_table(value).items()
        if key not in {"", "?"} and _is_settable(model, key, one, *below)
    }
    lines = model.shared.document.lines
    overlay(kept, to, (*model.at, _KEY, *below), lines, model.into)


def _is_settable(model: SwapTable, key: str, value: object, *below: str) -> bool:
    if _holds_null(value):
        message = "null is not set: leave the parameter out, or strip it"
        model.tell(Kind.NOT_HONOURED, message, _KEY, *below, key)
        return False
    return _is_kept(model, key, _KEY, *below, key)


def _is_kept(model: SwapTable, name: str, *place: str) -> bool:
    """Whether a parameter can be filtered; tells why not."""
    parsed = parameters.parse(name)
    if not isinstance(parsed, str):
        return True
    protected = name.removesuffix("?") == parameters.PROTECTED
    kind = Kind.NOTE if protected else Kind.NOT_HONOURED
    model.tell(kind, f"{name!r} {parsed}", *place)
    return False


def _holds_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_null, value.values()))
    return any(map(_holds_null, value)) if isinstance(value, list) else value is None


def names_of(table: Mapping[str, object]) -> Mapping[str, object]:
    """The names that ``setParamsByID`` gives a model, each with what it sets."""
    return as_table(as_table(table.get(_KEY)).get(_BY_ID))
