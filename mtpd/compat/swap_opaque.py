"""A model of llama-swap whose command is no llama-server: its program as it is written."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from mtpd.compat import commands
from mtpd.compat.remarks import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mtpd.compat.remarks import Path
    from mtpd.compat.swap_table import SwapTable

__all__ = ["put_opaque", "put_stop"]

_STOP_S = 10
"""llama-swap's own patience with a program that is to end."""


def put_opaque(
    model: SwapTable,
    at: tuple[str, ...],
    command: commands.Opaque,
    variables: Mapping[str, tuple[str, int, Path]],
) -> None:
    """Put the keys of a program.

    Args:
        model: The model.
        at: Where its profile is in ``Import.tree``.
        command: What it starts.
        variables: Its environment, each with its place.
    """
    model.set((*at, "kind"), "opaque", "cmd")
    message = f"{command.words[0]!r} is no llama-server: started as it is written, never tuned"
    model.tell(Kind.NOTE, message, "cmd")
    _put_words(model, (*at, "command"), command.words, "cmd")
    model.set((*at, "proxy"), model.text("proxy", "http://localhost:${PORT}"), "proxy")
    check = model.text("checkEndpoint").strip()
    if check:
        path = check if check == "none" else f"/{check.removeprefix('/')}"
        model.set((*at, "check"), path, "checkEndpoint")
    for name, (value, line, key) in variables.items():
        model.into.put((*at, "env", name), value, line=line, key=key)
    if model.whole("unloadTimeout", least=0) in {None, 0}:
        model.set((*at, "stop_timeout_s"), _STOP_S, "cmd")


def put_stop(model: SwapTable, at: tuple[str, ...]) -> None:
    """Put how a model is asked to end, and how long it may take."""
    text = commands.joined(model.text("cmdStop", keep=("PID",)))
    try:
        words = shlex.split(text)
    except ValueError as error:
        model.fault(f"cannot be split into words: {error}", "cmdStop")
        return
    if words:
        _put_words(model, (*at, "stop_command"), words, "cmdStop")
    stop_s = model.whole("unloadTimeout", least=0)
    if stop_s:
        model.set((*at, "stop_timeout_s"), stop_s, "unloadTimeout")


def _put_words(model: SwapTable, at: tuple[str, ...], words: Sequence[str], key: str) -> None:
    model.set(at, list(words), key)
    place = (model.line(key), (*model.at, key))
    for number in range(len(words)):
        model.into.lines[(*at, number)], model.into.keys[(*at, number)] = place
    program = words[0]
    if "/" in program and not program.startswith("/"):
        message = f"{program!r} is looked for beside this file, not in the working directory"
        model.tell(Kind.CHANGED, message, key)
