"""What is changed in every request for a model: the rules of its keys, and what they make."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mtpd.compat import parameters
from mtpd.compat.parameters import Parameter
from mtpd.config.tables import Filters, Setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mtpd.config.locate import Path
    from mtpd.config.schema import FiltersTable, ModelTable

__all__ = ["build_filters", "check_filters"]


def check_filters(path: Path, name: str, model: ModelTable) -> Iterator[tuple[Path, str]]:
    """Parameters that cannot be filtered, and names that nobody can ask for.

    Args:
        path: Of the model.
        name: Of the model.
        model: Its table.
    """
    table, at = model.filters, (*path, "filters")
    for number, key in enumerate(table.strip):
        wrong = _fault(key)
        if wrong is None and key.endswith("?"):
            wrong = "is taken out wherever it is: write it without '?'"
        if wrong is not None:
            yield (*at, "strip", number), f"{key!r} {wrong}"
    yield from _settings((*at, "set"), table.set)
    names = {name, model.served_as, *model.aliases}
    for asked, values in table.set_by_name.items():
        here = (*at, "set_by_name", asked)
        if asked not in names:
            yield here, f"no client can ask for this model as {asked!r}: add it to aliases"
        yield from _settings(here, values)


def _settings(path: Path, values: Mapping[str, object]) -> Iterator[tuple[Path, str]]:
    for key, value in values.items():
        wrong = _fault(key)
        if wrong is not None:
            yield (*path, key), f"{key!r} {wrong}"
        elif not _is_json(value):
            yield (*path, key), "must be a value that JSON has: no date, no nan, no inf"


def _fault(key: str) -> str | None:
    parsed = parameters.parse(key)
    return parsed if isinstance(parsed, str) else None


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def build_filters(table: FiltersTable) -> Filters:
    """The filters of a table that has passed the checks."""
    return Filters(
        strip=tuple(one.path for one in _parsed(table.strip)),
        set=_built(table.set),
        by_name=tuple((name, _built(values)) for name, values in table.set_by_name.items()),
    )


def _built(values: Mapping[str, object]) -> tuple[Setting, ...]:
    """In the order of the names, as llama-swap sets them; of ``a`` and ``a?`` the first counts."""
    keys = [key for key in sorted(values) if key.removesuffix("?") == key or key[:-1] not in values]
    return tuple(
        Setting(path=one.path, value=json.dumps(values[key]), soft=one.soft)
        for key, one in zip(keys, _parsed(keys), strict=True)
    )


def _parsed(keys: Iterable[str]) -> Iterator[Parameter]:
    for key in keys:
        parsed = parameters.parse(key)
        if not isinstance(parsed, Parameter):
            raise TypeError(parsed)
        yield parsed
