"""Builds the daemon, runs it, and takes it down in reverse order.

With ``mtpd.house`` and ``mtpd.ground`` the only place that constructs. Start order is reading
order; the exit stack undoes it backwards. Covers wiring and signals; takes no decision.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import uuid
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import anyio
import structlog

from mtpd import __version__, logs
from mtpd.bus import Bus
from mtpd.clock import Clock, SystemClock, rfc3339
from mtpd.config.directories import private_directory
from mtpd.config.live import LiveConfig
from mtpd.control.facts import DaemonFacts
from mtpd.control.hashing import DELAY_S
from mtpd.engine.needed import find_needed, placed
from mtpd.engine.opaque import foreign_env
from mtpd.errors import BinaryError, ConfigError, StateError
from mtpd.events import DaemonStarted, DaemonStopping
from mtpd.faults import Faults, NoFaults
from mtpd.gpu.card import find_card
from mtpd.hangup import Hangup, Meaning, has_terminal
from mtpd.house import House
from mtpd.lag import LagWatch
from mtpd.listen import bind_tcp, bind_unix, handed, serving, url_of
from mtpd.logfeed import DAEMON
from mtpd.notify import Notifier, watchdog_s
from mtpd.service import Service, describe
from mtpd.store.db import Database
from mtpd.store.token_file import TokenFile, Tokens
from mtpd.supervise import lock
from mtpd.supervise.cgroups import Cgroups
from mtpd.supervise.housekeeping import Housekeeping

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Mapping

    from mtpd.config.directories import Directories
    from mtpd.config.disk import ConfigOnDisk
    from mtpd.config.model import Config
    from mtpd.control.backend import Control
    from mtpd.control.reload import Reloader
    from mtpd.engine.client import EngineClient
    from mtpd.operations import Operations
    from mtpd.proxy.switch import Switchboard

__all__ = ["Daemon", "daemon", "serve"]

log = structlog.get_logger()

SWITCH_S = 0.0001
"""How long a thread that computes may go on while the loop waits to. Each of the loop's reads and
writes gives way to it, so that with Python's 5 ms the 64 writes of a step took 0.3 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A running daemon.

    Attributes:
        control: What the API answers with; the demo talks to it directly.
        operations: For waiting until an operation has ended.
        reloader: Reads the configuration again.
        board: Starts and stops the engines.
        bus: Every event.
        url: Address of the data plane.
        control_socket: Path of the control socket.
    """

    control: Control
    operations: Operations
    reloader: Reloader
    board: Switchboard[EngineClient]
    bus: Bus
    url: str
    control_socket: Path


@asynccontextmanager
async def daemon(
    config: Config,
    directories: Directories,
    *,
    path_env: str,
    environment: Mapping[str, str] = MappingProxyType({}),
    clock: Clock | None = None,
    faults: Faults | None = None,
    hash_delay_s: float = DELAY_S,
    machine: Path = Path("/"),
    disk: ConfigOnDisk | None = None,
) -> AsyncIterator[Daemon]:
    """Run a daemon while the block runs.

    Args:
        config: What to serve and how.
        directories: Where state and sockets live; made if missing.
        path_env: ``PATH``, in which a llama-server is looked for.
        environment: The daemon's own, of which other programs than llama-server get some, and
            which may name sockets that a service manager has opened.
        clock: Source of time.
        faults: Fault points of tests.
        hash_delay_s: Seconds after the start before the model files are hashed.
        machine: Where ``sys`` and ``proc`` of the cards lie.
        disk: Where ``config`` was read and can be read again; None where it cannot.

    Raises:
        StateError: Another daemon uses the state directory, or it cannot be used.
        ConfigError: Other machines would reach a daemon that has no access tokens.
        BinaryError: There is no usable engine.
        MtpdError: An address cannot be bound.
    """
    clock, faults = clock or SystemClock(), faults or NoFaults()
    async with AsyncExitStack() as stack:
        directories.create()
        _log_directory(directories.state / "logs")
        sole = stack.enter_context(lock.hold(directories.state))
        live = LiveConfig(config)
        tokens = _tokens(live, directories, clock)
        tcp, unix, socket_path = _listeners(config, directories, environment, stack)
        try:
            engine = await find_needed(config, path_env=path_env)
        except BinaryError as error:
            raise placed(config, error) from None
        store = await stack.enter_async_context(
            await Database.open_or_remember(
                directories.state / "mtpd.sqlite3",
                clock,
                scratch=directories.runtime,
                faults=faults,
            )
        )
        keeping = Housekeeping(directories, sole=sole, groups=Cgroups.delegated(environment))
        stack.push_async_callback(keeping.after)
        bus = Bus(boot=uuid.uuid4().hex[:12], clock=clock)
        stack.callback(bus.close)
        house = House(
            live,
            directories,
            engine,
            store,
            bus,
            card=await find_card(engine, root=machine),
            tokens=tokens,
            clock=clock,
            faults=faults,
            hash_delay_s=hash_delay_s,
            foreign_env=foreign_env(path_env, environment),
            keeping=keeping,
            disk=disk,
        )
        stack.callback(house.ground.telemetry.close)
        stack.enter_context(logs.tap(house.feed.from_threads(DAEMON)))
        await house.recover()
        url = url_of(tcp[0])
        control = house.control(
            DaemonFacts(
                version=__version__,
                pid=os.getpid(),
                started_at=rfc3339(clock.utc()),
                started=clock.now(),
                listen=url.removeprefix("http://"),
                control_socket=str(socket_path),
                state_dir=str(directories.state),
                engine_binary=engine.label,
            )
        )
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        sampler, board = house.ground.telemetry.sampler, house.switchboard
        house_runs = (
            house.operations.run,
            house.ground.hashes.run,
            house.ground.waking.run,
            house.loop.run,
            house.reloader.watch,
            house.history.run,
            house.ground.last_good.run,
            store.run,
        )
        for run in (sampler.run, board.run, *house_runs):
            tasks.start_soon(run)
        tasks.start_soon(house.idle.run, board)
        lag = LagWatch(told=house.metrics.lagged, clock=clock)
        stack.enter_context(lag.watching(asyncio.get_running_loop()))
        listening = serving(
            house.web(control), (*tcp, *unix), timeouts=lambda: live.server.timeouts
        )
        await stack.enter_async_context(listening)
        # Runs first at the end: open streams are cut, so that the listener can close.
        stack.callback(house.switchboard.close, "the daemon is stopping")
        bus.publish(DaemonStarted(version=__version__))
        tasks.start_soon(house.preloader.run)
        log.info("daemon.serving", url=url, control_socket=str(socket_path), engine=engine.label)
        yield Daemon(
            control=control,
            operations=house.operations,
            reloader=house.reloader,
            board=board,
            bus=bus,
            url=url,
            control_socket=socket_path,
        )
        bus.publish(DaemonStopping(reason="the daemon was told to end"))


def _listeners(
    config: Config,
    directories: Directories,
    environment: Mapping[str, str],
    stack: AsyncExitStack,
) -> tuple[tuple[socket.socket, ...], tuple[socket.socket, ...], Path]:
    """What clients and control are answered on, and where control is: handed over, else ours."""
    given = handed(environment)
    stack.callback(given.close)
    if (told := given.contradiction(config.server)) is not None:
        log.warning("daemon.listens_elsewhere", reason=told)
    tcp = given.tcp
    if not tcp:
        tcp = (bind_tcp(config.server.listen_host, config.server.listen_port),)
        stack.callback(tcp[0].close)
    if (path := given.control_path) is not None:
        return tcp, given.unix, path
    path = directories.control_socket(config.server.control_socket)
    unix = bind_unix(path)
    stack.callback(path.unlink, missing_ok=True)
    stack.callback(unix.close)
    return tcp, (unix,), path


def _log_directory(path: Path) -> None:
    """Make it; where the disk takes no new directory, the engines' logs are lost, and told.

    Raises:
        StateError: What lies there must not be trusted.
    """
    try:
        private_directory(path)
    except StateError as problem:
        if os.path.lexists(path):
            raise
        log.warning("logs.not_kept", reason=str(problem), hint=problem.hint)


def _tokens(config: LiveConfig, directories: Directories, clock: Clock) -> Tokens:
    """The access tokens, without which nothing is open to other machines."""
    tokens = Tokens(TokenFile(directories.state, clock), lambda: config.now.tokens)
    tokens.load()
    server = config.server
    if server.remote and not tokens.all():
        origin = config.now.origins.get("server.listen", "default")
        problem = (
            f"{origin}: server.listen: {server.listen} can be reached from other machines, and "
            "there is no access token"
        )
        hint = f"make one: mtpd token add NAME --state-dir {directories.state}"
        raise ConfigError((problem,), hint=hint)
    return tokens


async def serve(
    config: Config,
    directories: Directories,
    *,
    path_env: str,
    environment: Mapping[str, str],
    disk: ConfigOnDisk | None = None,
) -> None:
    """Run the daemon until SIGTERM or SIGINT; SIGHUP has it read its configuration again.

    A signal while it starts counts, too. A terminal that is closed ends what was started in
    it, unless ``nohup`` was asked for. A service manager is told of all of it.
    """
    sys.setswitchinterval(SWITCH_S)
    # What was imported stays: looking through it for garbage would stop the loop now and then.
    gc.collect()
    gc.freeze()
    hangup = Hangup.here()
    service = Service(
        Notifier(environment.get("NOTIFY_SOCKET")),
        watchdog_s=watchdog_s(environment),
        clock=SystemClock(),
    )
    with (
        anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals,
        service.unhurried(),
    ):
        async with (
            daemon(
                config, directories, path_env=path_env, environment=environment, disk=disk
            ) as running,
            service.serving(running.board, lambda: _status(running)),
        ):
            async for number in signals:
                meaning = Meaning.STOP
                if number is signal.SIGHUP:
                    meaning = hangup.meaning(terminal=has_terminal())
                if meaning is Meaning.STOP:
                    log.info("daemon.stopping", signal=number.name)
                    return
                if meaning is Meaning.RELOAD:
                    with service.reloading():
                        await running.reloader.hear()


def _status(running: Daemon) -> str:
    board, operation = running.board, running.operations.current
    return describe(
        board.engines(),
        board.queue(),
        operation,
        running.reloader.view(),
        running.control.degraded(),
    )
