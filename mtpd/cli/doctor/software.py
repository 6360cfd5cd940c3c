"""Findings about the configuration, the engine, the units and the running daemon. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mtpd.cli.doctor.finding import ERROR, WARNING, Check, Found, Seen, edit, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.cli.doctor.facts import EngineFacts, Facts, UnitFacts

__all__ = ["CONFIGURATION", "DAEMON", "ENGINE", "HIDDEN", "UNITS"]

_EMBEDDED: Final = "pip install 'mtpd[embedded]'"
_OFF: Final = "off"
"""What a file that adds options is renamed to end in."""


def _configuration(facts: Facts) -> Iterator[Found]:
    config = facts.config
    for problem in config.problems:
        yield Found(ERROR, f"the configuration is refused: {problem}", edit(problem, config.path))
    for remark in config.ignored:
        fix = edit(remark, config.path, then="mtpd check --strict lists all of them")
        yield Found(WARNING, f"{remark}: the model runs otherwise than this file says", fix)
    for name in config.unread:
        yield Found(WARNING, name, "mtpctl doctor --config mtpd.toml")


def _see_configuration(facts: Facts) -> Seen:
    config = facts.config
    if config.path is None:
        return Seen("no file, the defaults (mtpd serve needs a file)")
    return Seen(f"{config.path}, {config.models} model{'' if config.models == 1 else 's'}")


def _engine(facts: Facts) -> Iterator[Found]:
    engine = facts.engine
    if engine is None:
        return
    if engine.error is not None:
        says = f"{engine.error} No model can be started."
        yield Found(ERROR, says, _engine_fix(engine, facts.config.path))
    for lack in engine.lacks:
        says = f"{lack.arm} cannot be started: {lack.says}"
        then = "a newer llama-server, or binary = 'embedded'"
        yield Found(ERROR, says, edit(engine.origin, facts.config.path, then=then))
    for odd in engine.odd:
        then = "binary = the path of a llama-server for the card"
        yield Found(WARNING, odd, edit(engine.origin, facts.config.path, then=then))


def _engine_fix(engine: EngineFacts, config: str | None) -> str:
    """Of an engine that cannot be used, by how far one gets with it."""
    if engine.spec in {"auto", "embedded"} and engine.path is None:
        return _EMBEDDED
    if engine.mode is not None and not engine.mode & 0o111 and engine.path is not None:
        return f"chmod +x {quoted(engine.path)}"
    if "SIGILL" in (engine.error or ""):
        then = "a build for this processor (cmake -DGGML_NATIVE=OFF), or binary = 'embedded'"
        return edit(engine.origin, config, then=then)
    then = "binary = the path of a llama-server, or 'embedded'"
    return edit(engine.origin, config, then=then)


def _see_engine(facts: Facts) -> Seen:
    engine = facts.engine
    if engine is None:
        return Seen("not looked at: the configuration is refused", "unknown")
    return Seen(f"{engine.label}; it knows every option that these models need")


def _hidden(facts: Facts) -> Iterator[Found]:
    hidden = facts.hidden
    if hidden.system is not None:
        says = (
            f"{hidden.system} adds options to every llama-server, mtpd's engines among them: what"
            " runs is not what is configured, and what was measured may be another arm"
        )
        yield Found(ERROR, says, f"sudo mv {quoted(hidden.system, f'{hidden.system}.{_OFF}')}")
    if hidden.own is not None:
        says = (
            f"{hidden.own} adds options to every llama-server that you start by hand; mtpd's"
            " engines do not read it, so that the two do not compare"
        )
        yield Found(WARNING, says, f"mv {quoted(hidden.own, f'{hidden.own}.{_OFF}')}")
    if hidden.variables:
        says = (
            f"this environment has {' and '.join(hidden.variables)}, which every llama-server"
            " that you start by hand obeys; mtpd's engines do not get them, so that the two do"
            " not compare"
        )
        yield Found(WARNING, says, f"unset {' '.join(hidden.variables)}")


def _units(facts: Facts) -> Iterator[Found]:
    for unit in facts.units:
        yield from _unit(unit)


def _unit(unit: UnitFacts) -> Iterator[Found]:
    again = _install(unit)
    if not unit.program_there:
        says = f"{unit.path} starts {unit.program}, which is not there: the service cannot start"
        yield Found(ERROR, says, again)
    elif unit.differs:
        says = (
            f"{unit.path} is not what this version of mtpd installs: it may lack rights or limits"
            " that the daemon counts on"
        )
        yield Found(WARNING, says, again)
    if unit.names_user is not None and unit.account is None:
        says = f"{unit.path} runs as {unit.names_user}, and there is no such user"
        yield Found(ERROR, says, "sudo systemd-sysusers && sudo systemd-tmpfiles --create")


def _install(unit: UnitFacts) -> str:
    if unit.user:
        return "mtpd install-units --user --force && systemctl --user daemon-reload"
    return "sudo mtpd install-units --force && sudo systemctl daemon-reload"


def _see_units(facts: Facts) -> Seen:
    if not facts.units:
        return Seen("no unit of systemd is installed", "not_applicable")
    return Seen(" and ".join(unit.path for unit in facts.units))


def _daemon(facts: Facts) -> Iterator[Found]:
    daemon = facts.daemon
    if daemon.unreachable is not None:
        says, hint = daemon.unreachable
        yield Found(ERROR, says, hint)
    if daemon.version is not None and daemon.version != facts.version:
        says = (
            f"the daemon that runs is mtpd {daemon.version} and this is {facts.version}: it was"
            " not restarted since the update"
        )
        yield Found(WARNING, says, _restart(facts))
    for problem in daemon.invalid:
        says = f"the daemon keeps its old configuration, as the file is refused: {problem}"
        yield Found(ERROR, says, edit(problem, facts.config.path, then="then: mtpctl reload"))
    if daemon.needs_restart:
        says = f"not in force before a restart of the daemon: {', '.join(daemon.needs_restart)}"
        yield Found(WARNING, says, _restart(facts))
    for model, what, advice in daemon.engines:
        says = f"{model}: {what}" + (f" ({advice})" if advice else "")
        yield Found(ERROR, says, f"mtpctl models {quoted(model)}")
    for one in daemon.unusable:
        yield Found(ERROR, one, "mtpd check")


def _restart(facts: Facts) -> str:
    if any(not unit.user for unit in facts.units):
        return "sudo systemctl restart mtpd"
    if facts.units:
        return "systemctl --user restart mtpd"
    return f"kill {facts.daemon.pid} && mtpd serve"


def _see_daemon(facts: Facts) -> Seen:
    daemon = facts.daemon
    if daemon.pid is None:
        return Seen("no daemon answers; everything was looked at without one", "not_applicable")
    return Seen(f"mtpd {daemon.version} answers, pid {daemon.pid}")


CONFIGURATION: Final = Check(name="configuration", find=_configuration, see=_see_configuration)
ENGINE: Final = Check(name="engine", find=_engine, see=_see_engine)
HIDDEN: Final = Check(
    name="hidden options",
    find=_hidden,
    see=lambda _: Seen("no file and no variable adds options to llama-server"),
)
UNITS: Final = Check(name="units", find=_units, see=_see_units)
DAEMON: Final = Check(name="daemon", find=_daemon, see=_see_daemon)
