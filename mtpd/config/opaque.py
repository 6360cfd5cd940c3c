"""Programs that are no llama-server: their rules, and what is made of their keys.

They come from the configuration file alone, as a list of words that no shell reads.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mtpd.config.schema import LaunchTable
from mtpd.config.tables import Opaque

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mtpd.config.locate import Path
    from mtpd.config.schema import ModelTable

__all__ = ["PORT", "SLOTS", "build_opaque", "check_kind"]

PORT = "${PORT}"
"""Stands for a free port of this machine, another one at each start."""

SLOTS = 10
"""Requests at once where the profile says nothing, as many as llama-swap lets through."""

_DEFAULT_PROXY = f"http://127.0.0.1:{PORT}"
_NO_CHECK = "none"
_OURS = frozenset(LaunchTable.model_fields) - {"slots"} | {
    "model",
    "seed",
    "drafter",
    "drafters",
    "quality",
}
_THEIRS = ("command", "proxy", "check", "env")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = "MTPD_INSTANCE"
_LAST_PORT = 65535


def check_kind(path: Path, model: ModelTable) -> Iterator[tuple[Path, str]]:
    """What belongs to the other kind of model, is missing, or cannot be."""
    given = model.model_fields_set
    yield from _command((*path, "stop_command"), model.stop_command)
    if model.kind == "opaque":
        for key in sorted(given & _OURS):
            yield (*path, key), "is for llama-server only; kind is 'opaque'"
        yield from _opaque(path, model)
        return
    if model.model is None:
        yield path, "the key 'model' is required"
    for key in (key for key in _THEIRS if key in given):
        yield (*path, key), "is for programs that are no llama-server: it needs kind = 'opaque'"


def _opaque(path: Path, model: ModelTable) -> Iterator[tuple[Path, str]]:
    if not model.command:
        yield path, "the key 'command' is required where kind is 'opaque'"
    yield from _command((*path, "command"), model.command)
    proxy = model.proxy or _DEFAULT_PROXY
    if PORT in proxy and not any(PORT in word for word in model.command):
        at = (*path, "proxy") if model.proxy else path
        yield at, f"{PORT} does not occur in command: say in proxy where the program listens"
    if (wrong := _url_fault(proxy)) is not None:
        yield (*path, "proxy"), wrong
    if model.check != _NO_CHECK and not (model.check.startswith("/") and model.check.isprintable()):
        yield (*path, "check"), f"must be a path such as '/health', or 'none', not {model.check!r}"
    for name, value in model.env.items():
        if not _NAME.fullmatch(name) or name == _RESERVED:
            yield (*path, "env", name), f"{name!r} cannot be the name of a variable here"
        elif "\0" in value:
            yield (*path, "env", name), "must not hold a NUL character"


def _command(path: Path, command: Sequence[str]) -> Iterator[tuple[Path, str]]:
    if command and not command[0]:
        yield (*path, 0), "must name the program"
    for number, word in enumerate(command):
        if "\0" in word:
            yield (*path, number), "must not hold a NUL character"


def _url_fault(proxy: str) -> str | None:
    text = proxy.replace(PORT, str(_LAST_PORT))  # what is longer with any port is found too long
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        return f"is no URL: {error}"
    plain = text.isprintable() and " " not in text
    plain &= not (parts.query or parts.fragment or parts.username)
    if parts.scheme not in {"http", "https"} or not parts.hostname or not plain or port == 0:
        return f"must be a URL such as 'http://127.0.0.1:8000', not {_without_user(proxy)!r}"
    return None


def _without_user(proxy: str) -> str:
    """A URL to be shown: a name and a password before its host are not."""
    before, at, host = proxy.rpartition("@")
    return f"{before.partition('//')[0]}//…@{host}" if at else proxy


def build_opaque(model: ModelTable, program: str) -> Opaque | None:
    """What is started in place of an engine; None for a llama-server.

    Args:
        model: A table that has passed the checks.
        program: The first word of its command, absolute if it is a path.
    """
    if model.kind != "opaque":
        return None
    rest: Sequence[str] = model.command[1:]
    return Opaque(
        command=(program, *rest),
        proxy=(model.proxy or _DEFAULT_PROXY).rstrip("/"),
        check=None if model.check == _NO_CHECK else model.check,
        env=tuple(sorted(model.env.items())),
    )
