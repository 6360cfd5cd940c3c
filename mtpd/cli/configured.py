"""What the commands share that look at the configuration without a daemon."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from mtpd.clock import SystemClock
from mtpd.compat.drafter import MTP_HEADS
from mtpd.config.directories import Directories, find_config, is_there
from mtpd.engine.needed import find_needed
from mtpd.errors import StateError
from mtpd.store.token_file import TokenFile
from mtpd.views import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    from mtpd.config.model import Config, Profile
    from mtpd.types import EngineBinary

    CommandT = TypeVar("CommandT", bound=Callable[..., None])

__all__ = [
    "config_option",
    "config_path",
    "engine_warnings",
    "find_engine",
    "json_option",
    "print_json",
    "system_warnings",
    "token_warnings",
    "unread",
    "warn",
]

SYSTEM_ENGINE_CONFIG = Path("/etc/llama.cpp/config.ini")


def config_option(command: CommandT) -> CommandT:
    """Add ``--config``."""
    return click.option(
        "--config",
        "path",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The configuration file [default: ~/.config/mtpd/mtpd.toml, then /etc/mtpd/mtpd.toml,"
        " then the built-in defaults].",
    )(command)


def json_option(command: CommandT) -> CommandT:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(
        command
    )


def print_json(value: object) -> None:
    """Print what ``--json`` asks for: a view, or several, indented."""
    click.echo(json.dumps(encode(value), indent=2))


def find_engine(loaded: Config) -> EngineBinary:
    """The engine that the configuration names; asks it what it can do.

    Raises:
        BinaryError: There is none.
    """
    search = os.environ.get("PATH", os.defpath)
    return anyio.run(partial(find_needed, loaded, path_env=search))


def config_path(given: Path | None) -> Path | None:
    """The file that was named, else the user's, else the system's, else None."""
    return given if given is not None else find_config(os.environ)


def unread(given: Path | None, daemons: Path | None = None) -> tuple[str, ...]:
    """A file in the working folder that is not read because ``--config`` does not name it.

    Args:
        given: What ``--config`` names.
        daemons: The file of the daemon that runs, where that is read.
    """
    here, used = Path("mtpd.toml"), daemons or config_path(given)
    if given is not None or not here.is_file() or _same(used, here):
        return ()
    return ("mtpd.toml in this folder is not read: name it with --config mtpd.toml",)


def _same(used: Path | None, here: Path) -> bool:
    """Whether that is the file; a daemon's may be gone, or out of sight."""
    try:
        return used is not None and used.samefile(here)
    except OSError:
        return False


def engine_warnings(loaded: Config, binary: EngineBinary | None) -> tuple[str, ...]:
    """What is odd about this engine for this configuration."""
    return slot_warnings(loaded.profiles.values()) + _wrong_device(loaded, binary)


def slot_warnings(profiles: Iterable[Profile]) -> tuple[str, ...]:
    """That MTP heads draft for several slots, where a profile accepts that."""
    return tuple(
        f"{one.name} drafts with {one.drafter.word} for {one.slots} slots, which its profile"
        " accepts (drafter.several_slots): builds of llama-server were seen to put text of one slot"
        " into another's answer, and to accept no draft"
        for one in profiles
        if one.slots > 1 and one.drafter.several_slots == "accept" and one.drafter.word in MTP_HEADS
    )


def _wrong_device(loaded: Config, binary: EngineBinary | None) -> tuple[str, ...]:
    if binary is None or binary.kind != "embedded" or loaded.hardware is None:
        return ()
    message = (
        f"the hardware profile {loaded.hardware.name} is named, but {binary.label} runs on the"
        " processor: put a llama-server for the card on the PATH, or name it as [engine] binary"
    )
    return (message,)


def token_warnings(loaded: Config) -> tuple[str, ...]:
    """That the daemon would not start for want of an access token."""
    if not loaded.server.remote or loaded.tokens:
        return ()
    try:
        file = TokenFile(Directories.resolve(os.environ).state, SystemClock())
        if file.read():
            return ()
    except StateError as error:
        return (str(error),)
    message = (
        f"{loaded.server.listen} can be reached from other machines, and there is no access token"
        f" in {file.path}: mtpd serve does not start without one (mtpd token add NAME)"
    )
    return (message,)


def system_warnings() -> tuple[str, ...]:
    """What is odd about this machine for any engine."""
    if not is_there(SYSTEM_ENGINE_CONFIG):
        return ()
    message = (
        f"{SYSTEM_ENGINE_CONFIG} exists: every llama-server adds the options in it, so what runs"
        " is not only what is written here"
    )
    return (message,)


def warn(warnings: tuple[str, ...]) -> None:
    """Print warnings where they do not disturb the output."""
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
