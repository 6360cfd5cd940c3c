"""What the configuration changes in the fields of a request; pure and total.

First what is taken out, then what is put in: what a client may ask for is judged in between
(``mtpd.proxy.policy``), so that it is never told of what it has not sent.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mtpd.proxy.rename import with_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.config.tables import Filters

__all__ = ["completed", "rewritten", "stripped"]


def stripped(fields: Mapping[str, object], filters: Filters) -> Mapping[str, object]:
    """The fields without those that are never passed on."""
    for path in filters.strip:
        fields = _without(fields, path)
    return fields


def completed(fields: Mapping[str, object], filters: Filters, name: str) -> Mapping[str, object]:
    """The fields with those that are set for every request, and then for this name.

    Args:
        fields: What is left of the client's.
        filters: Of the model.
        name: What the client asked for.
    """
    own = next((settings for asked, settings in filters.by_name if asked == name), ())
    for setting in (*filters.set, *own):
        if not (setting.soft and _has(fields, setting.path)):
            fields = _with(fields, setting.path, json.loads(setting.value))
    return fields


def rewritten(body: bytes, before: Mapping[str, object], after: Mapping[str, object]) -> bytes:
    """The body with other fields; those that are the same keep their bytes.

    Args:
        body: As it came.
        before: Its members.
        after: What its members are to be.
    """
    if after is before:
        return body
    changes: dict[str, str | None] = {key: None for key in before if key not in after}
    for key, value in after.items():
        if key not in before:
            changes[key] = json.dumps(value)
        elif value is not before[key] and (text := json.dumps(value)) != json.dumps(before[key]):
            changes[key] = text
    return with_values(body, changes) if changes else body


def _has(fields: Mapping[str, object], path: tuple[str, ...]) -> bool:
    key, *below = path
    if key not in fields or not below:
        return key in fields
    table = fields[key]
    return isinstance(table, dict) and _has(table, tuple(below))


def _with(
    fields: Mapping[str, object], path: tuple[str, ...], value: object
) -> Mapping[str, object]:
    """A copy with a value; what stands in its way and is no table makes room for one."""
    key, *below = path
    if below:
        table = fields.get(key)
        value = _with(table if isinstance(table, dict) else {}, tuple(below), value)
    return {**fields, key: value}


def _without(fields: Mapping[str, object], path: tuple[str, ...]) -> Mapping[str, object]:
    """A copy without a value, or the fields themselves where it is not there."""
    if not _has(fields, path):
        return fields
    key, *below = path
    table = fields[key]
    if below and isinstance(table, dict):
        return {**fields, key: _without(table, tuple(below))}
    return {name: value for name, value in fields.items() if name != key}
