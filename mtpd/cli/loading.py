"""Loading the configuration for a command: with the environment, strict or not."""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import TYPE_CHECKING

import click

from mtpd.config.load import load
from mtpd.config.remarks import not_honoured, remark_text
from mtpd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import TypeVar

    from mtpd.config.model import Config

    CommandT = TypeVar("CommandT", bound=Callable[..., None])

__all__ = ["STRICT_HINT", "load_config", "strict_option", "tell"]

STRICT_HINT = "docs/migrating.md explains each; without --strict the file is used as it is"


def strict_option(command: CommandT) -> CommandT:
    """Add ``--strict``."""
    return click.option(
        "--strict", is_flag=True, help="Refuse a foreign file of which anything is not honoured."
    )(command)


def load_config(
    path: Path | None,
    *,
    overrides: Mapping[str, object] = MappingProxyType({}),
    strict: bool = False,
    look: Callable[[str], str | None] = lambda _path: None,
) -> Config:
    """Load a file of mtpd, of llama-swap or of llama.cpp's router; ``look`` as in ``load``.

    Raises:
        ConfigError: With every problem; with ``strict`` also what is not honoured.
    """
    config = load(path, overrides=overrides, environment=os.environ, look=look)
    if strict and (lost := not_honoured(config)):
        raise ConfigError(lost, hint=STRICT_HINT)
    return config


def tell(config: Config) -> None:
    """Print the remarks where they do not disturb the output."""
    for remark in config.remarks:
        click.echo(remark_text(remark), err=True)
