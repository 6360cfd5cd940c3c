"""``mtpd check``, ``mtpd config show`` and ``mtpd plan``: what would happen, without a daemon.

Reads the configuration and the engine's ``--help``; starts no engine, writes no file
and needs no daemon. What is running is ``mtpctl``'s business.
"""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from mtpd.config.checks import did_you_mean
from mtpd.config.directories import Directories, find_config
from mtpd.config.files import file_problems
from mtpd.config.load import load
from mtpd.config.origins import describe_origins
from mtpd.engine.binary import find
from mtpd.engine.command import build
from mtpd.errors import EXIT_CONFIG, BinaryError, ConfigError, NotFoundError
from mtpd.gpu.detect import detect
from mtpd.types import TcpEndpoint, UnixEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from mtpd.config.model import Config, Profile
    from mtpd.types import Command, Endpoint, EngineBinary
    from mtpd.views import Json

    CommandT = TypeVar("CommandT", bound=Callable[..., None])

__all__ = ["check", "config", "plan"]

SYSTEM_ENGINE_CONFIG = Path("/etc/llama.cpp/config.ini")
_KEY_PLACEHOLDER = "a-new-key-per-start"


def _config_option(command: CommandT) -> CommandT:
    return click.option(
        "--config",
        "path",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="The configuration file [default: ~/.config/mtpd/mtpd.toml, then /etc/mtpd/mtpd.toml,"
        " then the built-in defaults].",
    )(command)


def _json_option(command: CommandT) -> CommandT:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(
        command
    )


@click.command
@_config_option
@_json_option
def check(path: Path | None, *, as_json: bool) -> None:
    """Check the configuration and say everything that is wrong with it.

    Reads mtpd.toml and all profiles, looks for the model files, and asks the engine
    what it can do. Prints "ok" with a summary, or every problem as
    FILE:LINE: KEY: what is wrong, and then exits with 78.
    """
    result = _checked(_config_path(path))
    if as_json:
        click.echo(json.dumps(asdict(result) | {"ok": result.ok}, indent=2))
        if not result.ok:
            raise click.exceptions.Exit(EXIT_CONFIG)
        return
    if not result.ok:
        raise ConfigError(result.problems, hint="every key is explained in docs/configuration.md")
    for name, value in (
        ("ok", ", ".join(result.files) or "no file, the defaults"),
        ("models", ", ".join(result.models)),
        ("pools", ", ".join(result.pools) or "none"),
        ("hardware", result.hardware or "none named"),
        ("engine", result.engine),
    ):
        click.echo(f"{name:<9} {value}")
    _warn(result.warnings)


@click.group
def config() -> None:
    """Look at the configuration."""


@config.command
@_config_option
@click.option("--origin", is_flag=True, help="Tell where each value comes from.")
@_json_option
def show(path: Path | None, *, origin: bool, as_json: bool) -> None:
    """Print every value that is in force, also those that nobody set.

    Layers, later ones win: defaults, hardware profile, model profile, mtpd.toml,
    command line.
    """
    views = describe_origins(load(_config_path(path)))
    if as_json:
        click.echo(json.dumps([asdict(view) for view in views], indent=2))
        return
    for view in views:
        text = f"{view.key} = {_toml(view.value)}"
        click.echo(f"{text:<60}  # {view.origin}" if origin else text)


@click.command
@click.argument("model")
@click.option("--depth", type=click.IntRange(min=0), help="Plan for this draft depth.")
@_config_option
@_json_option
def plan(model: str, depth: int | None, path: Path | None, *, as_json: bool) -> None:
    """Print the exact command that would start MODEL.

    MODEL is a profile's name or alias. The command can be pasted into a shell; it is the
    one that the daemon runs, except for the socket, which is new at each start. Without
    --depth it is the depth that the profile asks for; a depth that a running daemon has
    measured and chosen is shown by `mtpctl status`.
    """
    planned = _planned(load(_config_path(path)), model, depth)
    if as_json:
        click.echo(json.dumps(planned.as_json(), indent=2))
        return
    for name, value in (
        ("model", f"{planned.profile.name} ({planned.profile.model})"),
        ("engine", planned.binary.label),
        ("depth", f"{planned.depth}: {planned.reason}"),
        ("endpoint", planned.where),
    ):
        click.echo(f"{name:<9} {value}")
    click.echo()
    click.echo(planned.shell())
    _warn(planned.warnings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """What ``check`` found, in the shape of its JSON."""

    problems: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    hardware: str | None = None
    engine: str | None = None

    @property
    def ok(self) -> bool:
        return not self.problems


def _checked(path: Path | None) -> _Checked:
    try:
        loaded = load(path)
    except ConfigError as error:
        return _Checked(problems=error.problems)
    problems = file_problems(loaded)
    binary = None
    try:
        binary = _find(loaded)
    except BinaryError as error:
        origin = loaded.origins.get("engine.binary", "default")
        problems += (f"{origin}: engine.binary: {error} ({error.hint})",)
    return _Checked(
        problems=problems,
        warnings=_engine_warnings(loaded, binary) + _system_warnings(),
        files=(str(path),) if path is not None else (),
        models=tuple(loaded.profiles),
        pools=tuple(loaded.pools),
        hardware=loaded.hardware.name if loaded.hardware is not None else None,
        engine=None if binary is None else binary.label,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """One command with its reasons."""

    profile: Profile
    binary: EngineBinary
    depth: int
    reason: str
    endpoint: Endpoint
    command: Command
    warnings: tuple[str, ...]

    @property
    def where(self) -> str:
        match self.endpoint:
            case UnixEndpoint(path=path):
                return f"unix:{path}"
            case TcpEndpoint(host=host, port=port):
                return f"http://{host}:{port} with a key that is new at each start"

    def shell(self) -> str:
        """The command for a shell: its directories, then the engine, which inherits nothing."""
        folders = [self.command.env["HOME"]]
        before = []
        if isinstance(self.endpoint, UnixEndpoint):
            folders.append(str(Path(self.endpoint.path).parent))
            # The engine leaves its socket behind and then cannot bind it again.
            before = [shlex.join(["rm", "-f", self.endpoint.path])]
        before = [shlex.join(["mkdir", "-p", "-m", "700", *folders]), *before]
        lines = [" && ".join([*before, "env -i"])]
        lines += [f"{name}={shlex.quote(value)}" for name, value in self.command.env.items()]
        return " \\\n  ".join([*lines, shlex.join(self.command.argv)])

    def as_json(self) -> dict[str, Json]:
        return {
            "model": self.profile.name,
            "engine": self.binary.label,
            "depth": self.depth,
            "reason": self.reason,
            "endpoint": self.where,
            "argv": list(self.command.argv),
            "env": dict(self.command.env),
            "warnings": list(self.warnings),
        }


def _planned(loaded: Config, model: str, depth: int | None) -> _Planned:
    profile = _profile(loaded, model)
    chosen, reason = _depth(profile, depth)
    binary = _find(loaded)
    directories = Directories.resolve(os.environ)
    endpoint: Endpoint = (
        UnixEndpoint(str(directories.runtime / f"plan-{profile.name}.sock"))
        if binary.unix_socket
        else TcpEndpoint("127.0.0.1", 8081, _KEY_PLACEHOLDER)
    )
    command = build(
        binary=binary,
        profile=profile,
        arm=profile.arm(chosen),
        endpoint=endpoint,
        threads=loaded.engine.threads,
        device_present=binary.kind == "external" and detect().has_gpu,
        home=str(directories.cache / "engine"),
        headroom_mib=loaded.budget.headroom_mib,
        extra_env=loaded.engine.extra_env,
        instance="plan",
    )
    missing = () if Path(profile.model).is_file() else (f"{profile.model} does not exist",)
    return _Planned(
        profile=profile,
        binary=binary,
        depth=chosen,
        reason=reason,
        endpoint=endpoint,
        command=command,
        warnings=missing + _engine_warnings(loaded, binary) + _system_warnings(),
    )


def _profile(loaded: Config, model: str) -> Profile:
    profile = loaded.profile_for(model)
    if profile is None:
        message = f"There is no model {model!r}{did_you_mean(model, loaded.profiles)}"
        raise NotFoundError(message, hint=f"known are {', '.join(loaded.profiles)}")
    return profile


def _depth(profile: Profile, asked: int | None) -> tuple[int, str]:
    allowed = profile.drafter.max_depth
    if asked is not None:
        if asked > allowed:
            message = f"{profile.name} allows depths 0 to {allowed}, not {asked}"
            raise click.BadParameter(message, param_hint="--depth")
        return asked, "asked for with --depth"
    if profile.drafter.depth is not None:
        return profile.drafter.depth, "drafter.depth of the profile, until one is measured"
    if allowed == 0:
        return 0, "the profile has no drafter"
    return 0, "no speculation until a depth is measured: the profile sets no drafter.depth"


def _find(loaded: Config) -> EngineBinary:
    search = os.environ.get("PATH", os.defpath)
    extra = dict(loaded.engine.extra_env)
    return anyio.run(partial(find, loaded.engine.binary, path_env=search, extra_env=extra))


def _config_path(given: Path | None) -> Path | None:
    return given if given is not None else find_config(os.environ)


def _engine_warnings(loaded: Config, binary: EngineBinary | None) -> tuple[str, ...]:
    if binary is None or binary.kind != "embedded" or loaded.hardware is None:
        return ()
    message = (
        f"the hardware profile {loaded.hardware.name} is named, but {binary.label} runs on the"
        " processor: put a llama-server for the card on the PATH, or name it as [engine] binary"
    )
    return (message,)


def _system_warnings() -> tuple[str, ...]:
    if not SYSTEM_ENGINE_CONFIG.exists():
        return ()
    message = (
        f"{SYSTEM_ENGINE_CONFIG} exists: every llama-server adds the options in it, so what runs"
        " is not only what is written here"
    )
    return (message,)


def _warn(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def _toml(value: Json) -> str:
    """A value as it would be written; TOML has no null."""
    return "(not set)" if value is None else json.dumps(value, ensure_ascii=False)
