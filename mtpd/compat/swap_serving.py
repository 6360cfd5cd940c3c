"""llama-swap's keys for how requests are served: loading lines, timeouts of an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.compat.remarks import Kind, as_table, is_whole
from mtpd.compat.swap_keys import is_empty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.compat.remarks import Import, Path

__all__ = ["KEYS", "put_loading_state", "put_timeouts"]

KEYS = frozenset({"sendLoadingState", "timeouts"})

_TIMEOUTS = {"connect": "connect_s", "responseHeader": "first_byte_s"}
_OF_SOCKETS = frozenset({"keepalive", "tlsHandshake", "expectContinue", "idleConn"})


def put_loading_state(
    table: Mapping[str, object], at: tuple[str, ...], key: Path, line: int, into: Import
) -> None:
    """Translate ``sendLoadingState`` of the file or of a model.

    Args:
        table: The file or the model.
        at: Where the setting's table is in ``into.tree``.
        key: Of the table in the file.
        line: Of the key.
        into: Takes the value.
    """
    value = table.get("sendLoadingState")
    place = (*key, "sendLoadingState")
    if isinstance(value, bool):
        word = "reasoning" if value else "off"
        into.put((*at, "loading_state"), word, line=line, key=place)
    elif value is not None:
        into.fault(line, place, f"must be true or false, not {value!r}")


def put_timeouts(
    table: Mapping[str, object],
    at: tuple[str, ...],
    key: Path,
    lines: Mapping[Path, int],
    into: Import,
) -> None:
    """Translate ``timeouts`` of a model, likewise; ``lines`` is of the whole file."""
    given = table.get("timeouts")
    place = (*key, "timeouts")
    if not isinstance(given, dict | None):
        into.fault(lines.get(place, 1), place, "must be a table of seconds")
    for name, value in as_table(given).items():
        here = (*place, name)
        line = lines.get(here, lines.get(place, 1))
        if name not in _TIMEOUTS and name not in _OF_SOCKETS:
            into.remark(Kind.NOT_HONOURED, line, here, "this key is not known")
        elif not is_whole(value) or value < 0:
            into.fault(line, here, f"must be a whole number of at least 0, not {value!r}")
        elif name in _TIMEOUTS:
            into.put((*at, "timeouts", _TIMEOUTS[name]), float(value), line=line, key=here)
        elif not is_empty(value):
            message = "mtpd asks the engine over a private socket, with a connection per request"
            into.remark(Kind.NOTE, line, here, message)
