"""``mtpd plan``: what a model needs, whether it fits, and the command that would start it.

Reads the configuration, the model's header, the card and the engine's ``--help``; starts no
engine, writes no file and needs no daemon.
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from mtpd.cli.configured import (
    config_option,
    config_path,
    engine_warnings,
    find_engine,
    json_option,
    print_json,
    system_warnings,
    unread,
    warn,
)
from mtpd.cli.json_views import PlanView
from mtpd.cli.loading import load_config
from mtpd.cli.loglines import logs_to_stderr
from mtpd.cli.memory import memory_parts
from mtpd.cli.opaque_plan import show_opaque
from mtpd.cli.session import console
from mtpd.config.checks import did_you_mean
from mtpd.config.directories import Directories
from mtpd.config.files import unreadable
from mtpd.control.memory_rows import memory_view
from mtpd.control.shapes import DeviceBudget, described, forecast_now, logged_sums
from mtpd.engine.command import build
from mtpd.errors import MtpdError, NotFoundError
from mtpd.gpu.detect import detect
from mtpd.supervise.logfile import log_path
from mtpd.types import TcpEndpoint, UnixEndpoint

if TYPE_CHECKING:
    from mtpd.config.model import Config, Profile
    from mtpd.gpu.detect import Detection
    from mtpd.memory_views import MemoryView
    from mtpd.types import Command, EngineBinary

__all__ = ["plan"]


def _models(ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    """The models of the configuration, for a shell; of one with errors none."""
    try:
        known = load_config(config_path(ctx.params.get("path"))).profiles
    except MtpdError:
        return []
    return [CompletionItem(name) for name in known if name.startswith(begun)]


_KEY_PLACEHOLDER = "a-new-key-per-start"
_MIB = 2**20


@click.command
@click.argument("model", shell_complete=_models)
@click.option("--depth", type=click.IntRange(min=0), metavar="N", help="Plan for this draft depth.")
@click.option(
    "--hardware",
    metavar="NAME",
    help="Forecast for this hardware profile's card, which need not be here; without a card,"
    " by default the one that the configuration names.",
)
@config_option
@json_option
def plan(
    model: str, depth: int | None, hardware: str | None, path: Path | None, *, as_json: bool
) -> None:
    """Say what MODEL needs of the card, and print the command that would start it.

    MODEL is a profile's name or alias. For every draft depth: predicted device memory by
    part, whether it fits, and what would make a depth fit that does not, the cheapest
    change first. The command can be pasted into a shell; it is the one that the daemon
    runs, except for the socket, which is new at each start. Without --depth it is the
    depth that the profile asks for; a depth that a running daemon has measured and chosen
    is shown by `mtpctl status`.
    """
    logs_to_stderr()
    loaded = load_config(config_path(path), overrides={"budget.hardware": hardware})
    profile = _profile(loaded, model, unread(path))
    if profile.opaque is not None:
        show_opaque(loaded, profile, profile.opaque, as_json=as_json)
        return
    planned = _planned(loaded, profile, depth, forecast=hardware is not None, unread=unread(path))
    if as_json:
        print_json(planned.view())
        return
    for name, value in (
        ("model", f"{planned.profile.name} ({planned.profile.model})"),
        ("engine", planned.binary.label),
        ("depth", f"{planned.depth}: {planned.reason}"),
        ("endpoint", planned.where),
    ):
        click.echo(f"{name:<9} {value}")
    out = console(sys.stdout)
    for part in memory_parts(planned.memory):
        out.print(part)
    click.echo()
    if planned.memory.forecast:
        click.echo(f"command   for this machine{'' if planned.card else ', which has no card'}")
        click.echo()
    click.echo(planned.shell())
    warn(planned.warnings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """One command with its reasons."""

    profile: Profile
    binary: EngineBinary
    depth: int
    reason: str
    endpoint: UnixEndpoint | TcpEndpoint
    command: Command
    memory: MemoryView
    card: bool
    warnings: tuple[str, ...]

    @property
    def where(self) -> str:
        match self.endpoint:
            case UnixEndpoint(path=path):
                return f"unix:{path} with a key that is new at each start"
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

    def view(self) -> PlanView:
        """The same for programs."""
        return PlanView(
            model=self.profile.name,
            engine=self.binary.label,
            depth=self.depth,
            reason=self.reason,
            endpoint=self.where,
            argv=tuple(self.command.argv),
            env=dict(self.command.env),
            memory=self.memory,
            warnings=self.warnings,
        )


def _planned(
    loaded: Config, profile: Profile, depth: int | None, *, forecast: bool, unread: tuple[str, ...]
) -> _Planned:
    chosen, reason = _depth(profile, depth)
    binary = find_engine(loaded)
    directories = Directories.resolve(os.environ)
    found = detect()
    endpoint = (
        UnixEndpoint(str(directories.runtime / f"plan-{profile.name}.sock"), _KEY_PLACEHOLDER)
        if binary.unix_socket
        else TcpEndpoint("127.0.0.1", 8081, _KEY_PLACEHOLDER)
    )
    memory = _memory(
        loaded, profile, chosen, binary, found=found, forecast=forecast or not found.has_gpu
    )
    wanted = next((one for one in memory.depths if one.depth == chosen), None)
    command = build(
        binary=binary,
        profile=profile,
        arm=profile.arm(chosen),
        endpoint=endpoint,
        threads=loaded.engine.threads,
        device_present=binary.kind == "external" and found.has_gpu,
        home=str(directories.cache / "engine"),
        headroom_mib=loaded.budget.headroom_mib,
        fits=not memory.forecast and wanted is not None and wanted.verdict == "fits",
        extra_env=loaded.engine.extra_env,
        instance="plan",
    )
    why = unreadable(profile.model)
    missing = () if why is None else (f"{profile.model} {why}",)
    return _Planned(
        profile=profile,
        binary=binary,
        depth=chosen,
        reason=reason,
        endpoint=endpoint,
        command=command,
        memory=memory,
        card=found.has_gpu,
        warnings=unread + missing + engine_warnings(loaded, binary) + system_warnings(),
    )


def _memory(
    loaded: Config,
    profile: Profile,
    depth: int,
    binary: EngineBinary,
    *,
    found: Detection,
    forecast: bool,
) -> MemoryView:
    """The card that is here, or with ``forecast`` the one that is named, if one is."""
    named = loaded.hardware if forecast else None
    card = found.devices[0]
    budget = DeviceBudget(
        read=lambda: found.provider.read(card.key),
        device=card.key,
        is_gpu=binary.kind == "external" and found.has_gpu,
        config=loaded,
    ).read(alone=True)
    if named is not None:
        budget = described(named, loaded.budget.headroom_mib * _MIB)
    logs = Directories.resolve(os.environ).state / "logs"
    return memory_view(
        forecast_now(
            loaded,
            profile,
            budget,
            binary=binary if named is None else None,
            sums=logged_sums(log_path(logs, profile.name, card.key)),
        ),
        wanted=depth,
    )


def _profile(loaded: Config, model: str, unread: tuple[str, ...]) -> Profile:
    profile = loaded.profile_for(model)
    if profile is None:
        message = f"There is no model {model!r}{did_you_mean(model, loaded.profiles)}"
        known = f"known are {', '.join(loaded.profiles)}"
        raise NotFoundError(message, hint="; ".join((known, *unread)))
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
