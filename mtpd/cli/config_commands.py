"""``mtpd check`` and ``mtpd config show``: what is configured, without a daemon.

Reads the configuration and the engine's ``--help``; starts no engine, writes no file
and needs no daemon. What is running is ``mtpctl``'s business.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from mtpd.cli.cells import WIDTH
from mtpd.cli.configured import (
    config_option,
    config_path,
    engine_warnings,
    find_engine,
    json_option,
    print_json,
    system_warnings,
    token_warnings,
    unread,
    warn,
)
from mtpd.cli.group import Commands
from mtpd.cli.json_views import ConfigCheckView
from mtpd.cli.loading import load_config, strict_option
from mtpd.config.files import file_problems, unreadable
from mtpd.config.origins import describe_origins
from mtpd.config.remarks import remark_text
from mtpd.config.sources import hint_for
from mtpd.engine.needed import placed
from mtpd.errors import EXIT_CONFIG, BinaryError, ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.views import Json

__all__ = ["check", "config"]


@click.command
@config_option
@strict_option
@json_option
def check(path: Path | None, *, strict: bool, as_json: bool) -> None:
    """Check the configuration and say everything that is wrong with it.

    Reads mtpd.toml and all profiles, looks for the model files, and asks the engine
    what it can do. Prints "ok" with a summary, or every problem as
    FILE:LINE: KEY: what is wrong, and then exits with 78. Of a file of llama-swap or of
    llama.cpp's router it also lists what is not honoured; --strict makes that a problem.
    """
    result = _checked(config_path(path), strict=strict, unread=unread(path))
    if as_json:
        print_json(result)
        if not result.ok:
            raise click.exceptions.Exit(EXIT_CONFIG)
        return
    for remark in result.remarks:
        click.echo(remark, err=True)
    if not result.ok:
        warn(result.warnings)
        raise ConfigError(result.problems, hint=hint_for(config_path(path)))
    for name, value in (
        ("ok", ", ".join(result.files) or "no file, the defaults (mtpd serve needs a file)"),
        ("models", ", ".join(result.models)),
        ("pools", ", ".join(result.pools) or "none"),
        ("hardware", result.hardware or "none named"),
        ("engine", result.engine),
    ):
        click.echo(f"{name:<9} {value}")
    warn(result.warnings)


@click.group(cls=Commands)
def config() -> None:
    """Look at the configuration."""


@config.command
@config_option
@click.option("--origin", is_flag=True, help="Tell where each value comes from.")
@json_option
def show(path: Path | None, *, origin: bool, as_json: bool) -> None:
    """Print every value that is in force, also those that nobody set.

    Layers, later ones win: defaults, hardware profile, model profile, mtpd.toml,
    command line.
    """
    views = describe_origins(load_config(config_path(path)))
    warn(unread(path))
    if as_json:
        print_json(views)
        return
    for view in views:
        text = _assignment(view.key, view.value)
        click.echo(_with_origin(text, view.origin) if origin else text)


def _checked(path: Path | None, *, strict: bool, unread: tuple[str, ...]) -> ConfigCheckView:
    try:
        loaded = load_config(path, strict=strict, look=unreadable)
    except ConfigError as error:
        return ConfigCheckView(problems=error.problems, warnings=unread, ok=False)
    problems = file_problems(loaded)
    binary = None
    try:
        binary = find_engine(loaded)
    except BinaryError as error:
        located = placed(loaded, error)
        problems += (f"{located} ({located.hint})",)
    return ConfigCheckView(
        problems=problems,
        remarks=tuple(remark_text(one) for one in loaded.remarks),
        warnings=(
            unread + engine_warnings(loaded, binary) + token_warnings(loaded) + system_warnings()
        ),
        files=(str(path),) if path is not None else (),
        models=tuple(loaded.profiles),
        pools=tuple(loaded.pools),
        hardware=loaded.hardware.name if loaded.hardware is not None else None,
        engine=None if binary is None else binary.label,
        ok=not problems,
    )


def _assignment(key: str, value: Json) -> str:
    """A key with its value; a list that the window does not hold has a line per item."""
    text = f"{key} = {_toml(value)}"
    if len(text) <= WIDTH or not isinstance(value, list):
        return text
    items = "".join(f"\n    {_toml(item)}," for item in value)
    return f"{key} = [{items}\n]"


def _with_origin(text: str, origin: str) -> str:
    """The value and its origin on one line of the window, else on two."""
    line = f"{text:<50}  # {origin}"
    return line if len(line) <= WIDTH and "\n" not in text else f"{text}\n    # {origin}"


def _toml(value: Json) -> str:
    """A value as it would be written; TOML has no null."""
    return "(not set)" if value is None else json.dumps(value, ensure_ascii=False)
