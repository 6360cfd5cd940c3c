"""Plans the start of a program that is no llama-server: its words, variables and address.

Nothing about it is known but what its profile says; it is started, asked for its health,
and stopped. Its environment is made from nothing, as an engine's is, of what a program
needs to find its files and its container runtime, and of what the profile adds.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from typing import TYPE_CHECKING

from mtpd.config.opaque import PORT
from mtpd.errors import EngineError
from mtpd.types import Command, FailureClass, HttpEndpoint, LaunchPlan, OpaqueStart
from mtpd.units import MIB
from tuner.types import Arm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtpd.config.model import Config, Opaque, Profile
    from mtpd.types import EngineKey

__all__ = ["READY_S", "digest_of", "foreign_env", "plan_opaque", "stop_command"]

READY_S = 120.0
"""How long a start may take where nothing is configured, as in llama-swap."""

INHERITED = (
    *("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR"),
    *("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"),
    *("DOCKER_HOST", "DOCKER_CONFIG", "CONTAINER_HOST", "DBUS_SESSION_BUS_ADDRESS"),
)
"""Variables of the daemon that such a program gets, beside ``PATH``."""


def foreign_env(path_env: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What such a program gets of the daemon's own environment."""
    kept = {name: environment[name] for name in INHERITED if name in environment}
    return {"PATH": path_env, **kept}


def plan_opaque(
    config: Config,
    profile: Profile,
    opaque: Opaque,
    *,
    key: EngineKey,
    port: int,
    env: Mapping[str, str],
) -> LaunchPlan:
    """Plan one start.

    Args:
        config: All of the configuration.
        profile: The model.
        opaque: Its program.
        key: Profile and device.
        port: What ``${PORT}`` stands for.
        env: Variables that every such program gets; with ``PATH``.

    Raises:
        EngineError: The program is not found.
    """
    number = str(port)
    words = [word.replace(PORT, number) for word in opaque.command]
    given = {name: value.replace(PORT, number) for name, value in opaque.env}
    environment = {**env, **dict(config.engine.extra_env), **given}
    own, general = profile.ready_timeout_s, config.engine.ready_timeout_s
    ready_s = own or general or READY_S
    return LaunchPlan(
        key=key,
        arm=Arm(profile=profile.name),
        command=Command(argv=_found(words, environment, profile.name), env=environment),
        endpoint=HttpEndpoint(opaque.proxy.replace(PORT, number)),
        fingerprint=digest_of(opaque),
        load_stall_s=ready_s,  # many print nothing while they load
        ready_timeout_s=ready_s,
        opaque=OpaqueStart(check=opaque.check),
        memory_bytes=None if profile.vram_mib is None else profile.vram_mib * MIB,
    )


def digest_of(opaque: Opaque) -> str:
    """What tells one program from another; nothing is measured of either."""
    return hashlib.sha256(repr(opaque).encode(errors="surrogateescape")).hexdigest()


def stop_command(
    words: tuple[str, ...], env: Mapping[str, str], *, profile: str, port: str = ""
) -> Command | None:
    """The command that asks an engine to end; None where there is none.

    Raises:
        EngineError: Its program is not found.
    """
    if not words:
        return None
    placed = [word.replace(PORT, port) if port else word for word in words]
    return Command(argv=_found(placed, env, profile), env=dict(env))


def _found(words: list[str], env: Mapping[str, str], profile: str) -> tuple[str, ...]:
    """The words with the program's path, which exec needs."""
    path = shutil.which(words[0], path=env.get("PATH", os.defpath))
    if path is None:
        where = "cannot be started" if "/" in words[0] else "is not on the PATH"
        msg = f"a program of {profile} {where}: {words[0]}"
        raise EngineError(
            msg,
            failure=FailureClass.CONFIG,
            hint="install it, or correct the command in its profile; no shell reads it",
        )
    return (path, *words[1:])
