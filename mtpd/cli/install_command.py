"""``mtpd install-units``: writes the files that have systemd run this installation.

Nothing is enabled or started: the commands that do so are printed.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mtpd.cli.configured import json_option, print_json, warn
from mtpd.cli.json_views import UnitFileView, UnitsView
from mtpd.cli.loading import load_config
from mtpd.config.data import units_dir
from mtpd.config.sandbox import SERVICE_PATH, is_hidden
from mtpd.config.unit_text import Setup, filled
from mtpd.errors import ConfigError, MtpdError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mtpd.config.model import Config

__all__ = ["install_units"]

PATHS = click.Path(path_type=Path)
SERVICE = "mtpd.service"
POWERCAP = "mtpd-powercap.service"
_UNSTARTABLE = re.compile(r"""[\x00-\x1f\x7f"'\\]""")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """For whom the units are.

    Attributes:
        user: Whether they are the user's own.
        prefix: The folder above ``systemd``, ``sysusers.d`` and ``tmpfiles.d``.
        config: The configuration file.
        loaded: What it says.
        program: How mtpd is started.
    """

    user: bool
    prefix: Path
    config: Path
    loaded: Config
    program: tuple[str, ...]

    @property
    def capped(self) -> bool:
        """Whether a power cap is declared, which only root can set."""
        hardware = self.loaded.hardware
        return not self.user and hardware is not None and hardware.power_cap_w is not None


@click.command("install-units")
@click.option("--user", is_flag=True, help="Units of your own, which need no root.")
@click.option(
    "--prefix",
    type=PATHS,
    metavar="DIR",
    help="Write below DIR [default: /etc, with --user ~/.config]; a package takes PKG/usr/lib.",
)
@click.option(
    "--config",
    "path",
    type=PATHS,
    metavar="FILE",
    help="The configuration to serve [default: /etc/mtpd/mtpd.toml, with --user"
    " ~/.config/mtpd/mtpd.toml].",
)
@click.option(
    "--program", type=PATHS, metavar="FILE", help="The mtpd to start [default: this one]."
)
@click.option("--force", is_flag=True, help="Replace files that are there and are different.")
@click.option("--dry-run", is_flag=True, help="Print the files instead of writing them.")
@json_option
def install_units(
    *,
    user: bool,
    prefix: Path | None,
    path: Path | None,
    program: Path | None,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write the units that have systemd run mtpd; enables and starts nothing.

    They start this installation with the named configuration and listen on its
    [server] listen. The commands that enable and start it are printed. A unit to set the
    power cap is written where the configuration declares one. docs/systemd.md says what
    the service may do; changes of your own belong in a drop-in (systemctl edit mtpd).
    """
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    config = (path or (own if user else Path("/etc")) / "mtpd" / "mtpd.toml").absolute()
    target = _Target(
        user=user,
        prefix=(prefix or (own if user else Path("/etc"))).absolute(),
        config=config,
        loaded=load_config(config if path is not None or config.is_file() else None),
        program=_program() if program is None else (str(program.absolute()),),
    )
    texts = _texts(target)
    warnings = tuple(_warnings(target))
    if not dry_run:
        _refuse_hidden(target)
        _write(texts, force=force)
    commands = _commands(target)
    if as_json:
        files = tuple(UnitFileView(path=str(at), text=text) for at, text in texts.items())
        print_json(
            UnitsView(written=not dry_run, files=files, commands=tuple(commands), warnings=warnings)
        )
        return
    for at, text in texts.items():
        click.echo(f"# {at}\n{text}" if dry_run else f"wrote {at}")
    click.echo(f"{'these would' if dry_run else 'these'} start it now and with the machine:")
    for command in commands:
        click.echo(f"  {command}")
    warn(warnings)


def _program() -> tuple[str, ...]:
    """How this installation is started."""
    script = Path(sys.executable).with_name("mtpd")
    return (str(script),) if script.is_file() else (sys.executable, "-m", "mtpd.cli.mtpd")


def _texts(target: _Target) -> dict[Path, str]:
    """Every file by its path."""
    _refuse_unstartable(target.program[0])
    server = target.loaded.server
    if not server.listen_port:
        origin = target.loaded.origins.get("server.listen", "default")
        problem = f"{origin}: server.listen: a socket unit needs a port, not {server.listen}"
        raise ConfigError((problem,), hint="name a port, e.g. 127.0.0.1:8080")
    setup = Setup(program=target.program, config=str(target.config), listen=server.listen)
    return {at: filled(file.read_text(encoding="utf-8"), setup) for at, file in _places(target)}


def _refuse_unstartable(program: str) -> None:
    """Refuse a program that systemd would not start, however its path is written."""
    if _UNSTARTABLE.search(program):
        message = (
            f"systemd starts no program whose path has a quote, a backslash or a control"
            f" character, as {program!r} has"
        )
        raise MtpdError(message, hint="install mtpd into another folder, e.g. /opt/mtpd")


def _places(target: _Target) -> Iterator[tuple[Path, Path]]:
    """Where each file goes, and the shipped one."""
    shipped, prefix = units_dir(), target.prefix
    folder = prefix / "systemd" / ("user" if target.user else "system")
    for unit in sorted((shipped / "user" if target.user else shipped).glob("mtpd*.*")):
        if unit.name != POWERCAP or target.capped:
            yield folder / unit.name, unit
    version = _systemd_version()
    for drop_in in sorted((shipped / "drop-ins").iterdir()):
        since, _, name = drop_in.name.partition("-")
        if version >= int(since):
            yield folder / f"{SERVICE}.d" / name, drop_in
    if not target.user:
        for kind in ("sysusers.d", "tmpfiles.d"):
            yield prefix / kind / "mtpd.conf", shipped / kind / "mtpd.conf"


def _systemd_version() -> int:
    """The version of this machine's systemd; 0 where there is none to ask."""
    program = shutil.which("systemctl")
    if program is None:
        return 0
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)  # noqa: S603 - a fixed word
    found = re.match(r"systemd (\d+)", said.stdout)
    return int(found[1]) if found else 0


def _commands(target: _Target) -> list[str]:
    """What enables and starts it."""
    if target.user:
        return [
            "systemctl --user daemon-reload",
            "systemctl --user enable --now mtpd.socket mtpd.service",
            "loginctl enable-linger    # so that it runs while you are not logged in",
        ]
    units = ["mtpd.socket", "mtpd-control.socket", SERVICE, *([POWERCAP] if target.capped else ())]
    return [
        "sudo systemd-sysusers && sudo systemd-tmpfiles --create mtpd.conf",
        "sudo systemctl daemon-reload",
        f"sudo systemctl enable --now {' '.join(units)}",
    ]


def _warnings(target: _Target) -> Iterator[str]:
    """What would keep the service from doing what its user expects."""
    if not target.config.is_file():
        yield f"{target.config} is not there yet: without it the service ends with exit code 78"
    if not _systemd_version():
        yield "this machine has no systemctl; drop-ins for newer versions of systemd are left out"
    engine = target.loaded.engine.binary
    found = shutil.which("llama-server") if engine == "auto" else None
    if found is not None and shutil.which("llama-server", path=SERVICE_PATH) is None:
        yield f"the service does not find {found} on its PATH: name it as [engine] binary"
    if target.user:
        return
    for what, file in (*_own_files(target), *_served_files(target.loaded)):
        if is_hidden(file):
            yield f"{what} {file} is hidden from the service (ProtectHome): see docs/systemd.md"


def _own_files(target: _Target) -> tuple[tuple[str, str], ...]:
    return ("the program", target.program[0]), ("the configuration", str(target.config))


def _served_files(loaded: Config) -> Iterator[tuple[str, str]]:
    if "/" in loaded.engine.binary:
        yield "the engine", loaded.engine.binary
    for profile in loaded.profiles.values():
        for file in (profile.model, profile.drafter.model):
            if file:
                yield f"the model file of {profile.name},", file


def _refuse_hidden(target: _Target) -> None:
    """A service whose program it cannot see would fail at every start."""
    hidden = [f"{what} {file}" for what, file in _own_files(target) if is_hidden(file)]
    if hidden and not target.user:
        message = f"{' and '.join(hidden)} would be hidden from the service, as all homes are"
        hint = (
            "install mtpd into /opt (python3 -m venv /opt/mtpd) and keep the configuration in"
            " /etc/mtpd, or use --user, which runs it as you"
        )
        raise MtpdError(message, hint=hint)


def _write(texts: Mapping[Path, str], *, force: bool) -> None:
    try:
        others = [
            at for at, text in texts.items() if at.is_file() and at.read_bytes() != text.encode()
        ]
        if others and not force:
            names = "\n".join(f"{at} is already there and is different" for at in others)
            hint = "--force replaces them; changes of your own belong in a drop-in: systemctl edit"
            raise MtpdError(names, hint=hint)
    except OSError as error:
        raise _unwritten(next(iter(texts)), error) from error
    for at, text in texts.items():
        try:
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_text(text, encoding="utf-8")
            at.chmod(0o644)
        except OSError as error:
            raise _unwritten(at, error) from error


def _unwritten(at: Path, error: OSError) -> MtpdError:
    message = f"{error.filename or at} cannot be written: {error.strerror}"
    hint = "run it with sudo, or use --user; --dry-run only prints"
    if error.errno == errno.ENOSPC:
        hint = "make room on that disk, then run it again with --force"
    return MtpdError(message, hint=hint)
