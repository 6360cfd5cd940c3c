"""``mtpd powercap``: set the card's power cap, and say whether it is in force.

The daemon itself only reads the cap. Setting it needs root: run ``mtpd powercap apply``
as a service of its own before the daemon starts, and after each resume.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mtpd.cli.configured import config_option, config_path, json_option, print_json
from mtpd.cli.group import Commands
from mtpd.cli.json_views import CapView
from mtpd.cli.loading import load_config
from mtpd.cli.loglines import logs_to_stderr
from mtpd.errors import ConfigError, NotFoundError
from mtpd.gpu import powercap as caps
from mtpd.gpu.detect import detect
from mtpd.types import Value
from mtpd.units import DeviceKey

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from mtpd.gpu.base import PowerCap
    from mtpd.gpu.layered import LayeredProvider
    from mtpd.types import Reading

    CommandT = TypeVar("CommandT", bound=Callable[..., None])

__all__ = ["powercap"]

ROOT = Path("/")
"""Where ``sys`` and ``proc`` lie."""


def _options(command: CommandT) -> CommandT:
    for add in (
        json_option,
        click.option("--device", metavar="ADDRESS", help="PCI address [default: the first card]."),
        click.option(
            "--watts",
            type=click.FloatRange(0, 2000),
            metavar="W",
            help="The cap [default: power_cap_w of the hardware profile].",
        ),
        config_option,
    ):
        command = add(command)
    return command


@click.group(cls=Commands)
def powercap() -> None:
    """Set the card's power cap, or say whether it is in force."""


@powercap.command
@_options
def apply(path: Path | None, *, watts: float | None, device: str | None, as_json: bool) -> None:
    """Set the power cap and read it back; needs root.

    0 is refused, because the driver takes it as "restore the default", and so is a cap
    above the card's highest. Fails when the driver shows another cap than was set.
    """
    wanted_w = _wanted(path, watts)
    provider, key = _card(device)
    _show(key, caps.apply(provider, key, wanted_w), wanted_w, as_json=as_json)


@powercap.command
@_options
def verify(path: Path | None, *, watts: float | None, device: str | None, as_json: bool) -> None:
    """Say whether the declared power cap is in force; changes nothing.

    The driver shows what was asked of it, not what the card does: whether a busy card
    keeps its cap is seen by a running daemon (mtpctl gpu).
    """
    wanted_w = _wanted(path, watts)
    provider, key = _card(device)
    cap = provider.power_cap(key)
    verdict = caps.judge(cap, wanted_w=wanted_w)
    _show(key, cap, wanted_w, as_json=as_json)
    if verdict.state is not caps.CapState.DECLARED:
        raise click.exceptions.Exit(1)


def _wanted(path: Path | None, watts: float | None) -> float:
    if watts is not None:
        return watts
    hardware = load_config(config_path(path)).hardware
    if hardware is None or hardware.power_cap_w is None:
        problem = "no power cap is declared: budget.hardware names no profile with power_cap_w"
        raise ConfigError((problem,), hint="name one with --watts")
    return hardware.power_cap_w


def _card(device: str | None) -> tuple[LayeredProvider, DeviceKey]:
    logs_to_stderr()
    found = detect(root=ROOT)
    keys = [one.key for one in found.devices if one.vendor != "cpu"]
    if not keys:
        why = "; ".join(f"{refusal.provider}: {refusal.reason}" for refusal in found.refused)
        message = "there is no card whose power cap could be set"
        raise NotFoundError(message, hint=why)
    if device is None:
        return found.provider, keys[0]
    if device.lower() not in keys:
        message = f"there is no card {device}"
        raise NotFoundError(message, hint=f"there are: {', '.join(keys)}")
    return found.provider, DeviceKey(device.lower())


def _show(key: DeviceKey, cap: PowerCap, wanted_w: float, *, as_json: bool) -> None:
    verdict = caps.judge(cap, wanted_w=wanted_w)
    report = CapView(
        device=key,
        state=verdict.state.value,
        reason=verdict.reason,
        wanted_w=wanted_w,
        current_w=_watts(cap.current_w),
        default_w=_watts(cap.default_w),
        min_w=_watts(cap.min_w),
        max_w=_watts(cap.max_w),
    )
    if as_json:
        print_json(report)
    else:
        click.echo(f"{key}: {verdict.state.value}: {verdict.reason}")


def _watts(reading: Reading[float]) -> float | None:
    return reading.value if isinstance(reading, Value) else None
