"""Reads the embedded engine's command line against its flag table, and writes its help.

The behaviour is llama-server's: `--under_score` reads as `--under-score`, the last of
two equal flags wins, `--flag=value` is no spelling, errors come in its words. Values
of variables other than `Flag.env` are not read from the environment.
"""

from __future__ import annotations

import enum
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.engine.embedded_flag import Flag, Setting
from mtpd.engine.embedded_flags import DEFAULTS, FLAGS, SECTIONS
from mtpd.engine.embedded_values import BadValueError, EnumValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Action", "Invocation", "RefusedError", "help_text", "parse"]

COLUMN = 40
"""Where the help texts start, as in llama-server's help."""
WIDTH = 70
NARROWEST_GAP = 3
LONGEST_SHORT_NAME = 7

HINT = (
    "hint: the embedded engine takes the flags that --help lists; "
    "for others name a llama-server of your own as engine.binary"
)


class RefusedError(Exception):
    """A command line that cannot be started; the text is what the user sees."""


class Action(enum.Enum):
    """What the command line asks for."""

    SERVE = enum.auto()
    HELP = enum.auto()
    VERSION = enum.auto()


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command line that was read: what to do, and with which settings in order."""

    action: Action
    settings: tuple[Setting, ...] = ()


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> Invocation:
    """Read the arguments after the program's name; raises RefusedError."""
    settings = [*DEFAULTS, *_from_environment(environ)]
    action = Action.SERVE
    arguments = iter(argv)
    for argument in arguments:
        name = argument.replace("_", "-") if argument.startswith("--") else argument
        flag = _BY_NAME.get(name)
        if flag is None:
            msg = f"error: invalid argument: {name}\n{HINT}"
            raise RefusedError(msg)
        if "--version" in flag.names:
            return Invocation(Action.VERSION)
        if "--help" in flag.names:
            action = Action.HELP
        settings += _settings(flag, name, arguments)
    if action is Action.SERVE:
        _check({setting.field: setting for setting in settings})
    return Invocation(action, tuple(settings))


def help_text() -> str:
    """Every flag in llama-server's layout, so that one parser reads both."""
    blocks = []
    for title, flags in SECTIONS:
        rows = "\n".join(_help_row(flag) for flag in flags)
        blocks.append(f"----- {title} -----\n\n{rows}\n")
    return "\n\n".join(blocks)


_BY_NAME: Mapping[str, Flag] = {name: flag for flag in FLAGS for name in (*flag.names, *flag.off)}


def _settings(flag: Flag, name: str, arguments: Iterator[str]) -> list[Setting]:
    if flag.read is None:
        return [Setting(field, name in flag.names) for field in flag.fields]
    value = next(arguments, None)
    if value is None:
        raise RefusedError(_complaint(flag, name, "expected value for argument"))
    try:
        read = flag.read(value)
    except BadValueError as error:
        raise RefusedError(_complaint(flag, name, str(error))) from error
    return [Setting(field, read) for field in flag.fields]


def _from_environment(environ: Mapping[str, str]) -> list[Setting]:
    return [
        setting
        for flag in FLAGS
        if flag.env is not None and environ.get(flag.env)
        for setting in _settings(flag, flag.names[-1], iter([environ[flag.env]]))
    ]


def _check(settings: Mapping[str, Setting]) -> None:
    """Refuse what the engine would take and then do wrongly, each seen on the real one."""
    if "model.path" not in settings:
        msg = (
            "error: no model is given: -m FNAME is required\n"
            "hint: the embedded engine serves one model; it is no router"
        )
        raise RefusedError(msg)
    types = settings.get("speculative.types")
    simple = EnumValue("common_speculative_type", "COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE")
    if (
        types is not None
        and isinstance(types.value, tuple)
        and simple in types.value
        and "speculative.draft.mparams.path" not in settings
    ):
        msg = (
            "error: --spec-type draft-simple needs --spec-draft-model FNAME\n"
            "hint: without it the engine would start and never draft"
        )
        raise RefusedError(msg)


def _complaint(flag: Flag, name: str, why: str) -> str:
    return (
        f'error while handling argument "{name}": {why}\n\n'
        f"usage:\n{_help_row(flag)}\n\n\nto show complete usage, run with -h"
    )


def _help_row(flag: Flag) -> str:
    """One row as llama.cpp lays it out (common/arg.cpp, common_arg::to_string)."""
    names = (*flag.names, *flag.off)
    first = names[0]
    if len(names) > 1:
        first = f"{first}, ".ljust(LONGEST_SHORT_NAME)
    left = f"{first}{', '.join(names[1:])}" + (f" {flag.hint}" if flag.hint else "")
    lines = textwrap.wrap(flag.help, WIDTH)
    if flag.env:
        lines.append(f"(env: {flag.env})")
    gap = "\n" + " " * COLUMN
    if len(left) > COLUMN - NARROWEST_GAP:
        return left + gap + gap.join(lines)
    return left.ljust(COLUMN) + gap.join(lines)
