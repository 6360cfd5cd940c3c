"""``mtpd serve``, and how a daemon is run by a command.

The daemon takes longer to load than all commands together, and only this and ``mtpd demo`` need it.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click
import structlog

from mtpd import logs
from mtpd.cli.configured import unread
from mtpd.cli.loading import load_config, strict_option
from mtpd.compat.remarks import Kind
from mtpd.config.directories import Directories, find_config
from mtpd.config.disk import ConfigOnDisk
from mtpd.config.files import NO_MODEL
from mtpd.config.remarks import not_honoured, remark_text
from mtpd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mtpd.config.model import Config

__all__ = ["run", "serve"]

PATHS = click.Path(path_type=Path)

log = structlog.get_logger()


@click.command()
@click.option(
    "--config",
    "path",
    type=PATHS,
    metavar="FILE",
    help="Configuration file: mtpd.toml, or llama-swap's .yaml, or llama.cpp's presets .ini.",
)
@strict_option
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where clients are answered; beyond the loopback only with access tokens.",
)
@click.option(
    "--watch-config", is_flag=True, help="Read the configuration again when it was saved."
)
@click.option("--state-dir", type=PATHS, metavar="DIR", help="Database, access tokens and logs.")
@click.option("--runtime-dir", type=PATHS, metavar="DIR", help="Control and engine sockets.")
@click.option("--cache-dir", type=PATHS, metavar="DIR", help="Private homes of engines.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Least severe log line to print.",
)
@click.option("--log-json", is_flag=True, help="One JSON object per log line, also on a terminal.")
def serve(
    path: Path | None,
    *,
    strict: bool,
    listen: str | None,
    watch_config: bool,
    state_dir: Path | None,
    runtime_dir: Path | None,
    cache_dir: Path | None,
    log_level: str,
    log_json: bool,
) -> None:
    """Run the daemon.

    Without --config, the file is $XDG_CONFIG_HOME/mtpd/mtpd.toml or
    /etc/mtpd/mtpd.toml. The directories are those that the options name, else
    $STATE_DIRECTORY, $RUNTIME_DIRECTORY and $CACHE_DIRECTORY (systemd sets them),
    else the XDG ones. SIGTERM drains nothing and stops within seconds. SIGHUP and
    mtpctl reload have the configuration read again, as does saving it with
    [server] watch_config: only models that it changes are drained and restarted.

    Exit codes: 0 stopped as told, 1 failed with a reason, 2 usage, 78 configuration.
    """
    logs.configure(json=log_json or not sys.stderr.isatty(), level=log_level)
    found = path or find_config(os.environ)
    if found is None:
        raise ConfigError(
            ("there is no configuration file",),
            hint="; ".join(
                ("name one with --config FILE, or try mtpd demo, which needs none", *unread(path))
            ),
        )
    overrides = {"server.listen": listen, "server.watch_config": watch_config or None}
    disk = ConfigOnDisk(found, functools.partial(_servable, found, overrides, strict=strict))
    config = disk.read()
    for remark in config.remarks:
        say = log.warning if remark.kind is Kind.NOT_HONOURED else log.info
        say("config.remark", text=remark_text(remark))
    directories = Directories.resolve(
        os.environ, state=state_dir, runtime=runtime_dir, cache=cache_dir
    )
    from mtpd.app import serve as serve_daemon  # noqa: PLC0415  # see the module

    run(
        serve_daemon,
        config,
        directories,
        path_env=os.environ.get("PATH", os.defpath),
        environment=dict(os.environ),
        disk=disk,
    )


def _servable(path: Path, overrides: Mapping[str, object], *, strict: bool) -> Config:
    """What a file configures, if it configures any model."""
    config = load_config(path, overrides=overrides, strict=strict)
    if not config.profiles:
        lost = not_honoured(config)  # why none is left
        raise ConfigError((*lost, f"{path}: {NO_MODEL}"), hint="mtpd check looks at everything")
    return config


def run(function: Callable[..., Awaitable[None]], *args: object, **keywords: object) -> None:
    """Run a daemon, or what runs one, until it ends."""
    os.umask(0o077)  # prompts and keys pass through here: nothing of ours is for others
    anyio.run(functools.partial(function, *args, **keywords))
