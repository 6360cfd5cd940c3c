"""Reading the configuration again: on a signal, on an order, or because it was saved.

Covers what is read and whether it can be used, the operation that applies it, and what is
told of both. An invalid file changes nothing. The operation reads the files when its turn
has come: what is applied is what lies there then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import structlog
from anyio import to_thread

from mtpd.clock import rfc3339
from mtpd.config.diff import diff, revised
from mtpd.config.files import problems_of
from mtpd.config.quiet import Look, look
from mtpd.config.remarks import not_honoured
from mtpd.errors import ConfigError, ConflictError, MtpdError
from mtpd.events import ConfigRefused, ConfigReloaded
from mtpd.proxy.actors import AT_REST
from mtpd.proxy.outcomes import Renewed
from mtpd.views import ConfigFileView, encode
from tuner.types import Act, Decision

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mtpd.clock import Clock
    from mtpd.config.diff import Changes
    from mtpd.config.disk import ConfigOnDisk
    from mtpd.config.live import LiveConfig
    from mtpd.config.model import Config
    from mtpd.control.applying import Applying
    from mtpd.control.recorder import StoreRecorder
    from mtpd.events import Event
    from mtpd.operations import Operations, Progress
    from mtpd.proxy.outcomes import Renewal
    from mtpd.store.journal import Journal
    from mtpd.views import EngineView, Json, OperationView

__all__ = ["QUIET_S", "SUBJECT", "Reloader"]

log = structlog.get_logger()

SUBJECT = "configuration"
"""What a decision to reload is about in the journal."""

QUIET_S = 2.0
"""How long no file may have moved before what was saved is read."""

LOOK_S = 0.5
"""How long between two looks at the files."""


class Reloader:
    """Reads the configuration again and has it applied.

    Args:
        disk: Where it lies; None where the daemon was started without a file.
        live: What is in force.
        applying: Puts another one into force.
        engines: What runs.
        operations: The lane in which it is applied.
        recorder: Writes the decision down.
        journal: Takes its outcome.
        publish: Takes the events.
        clock: Dates and measures.
        look_s: How long between two looks at the files.
    """

    def __init__(
        self,
        *,
        disk: ConfigOnDisk | None,
        live: LiveConfig,
        applying: Applying,
        engines: Callable[[], Sequence[EngineView]],
        operations: Operations,
        recorder: StoreRecorder,
        journal: Journal,
        publish: Callable[[Event], object],
        clock: Clock,
        look_s: float = LOOK_S,
    ) -> None:
        self._disk, self._live, self._applying, self._engines = disk, live, applying, engines
        self._operations, self._recorder, self._journal = operations, recorder, journal
        self._publish, self._clock, self._look_s = publish, clock, look_s
        self._asking = anyio.Lock()
        self._latest: str | None = None
        self._read_at = rfc3339(clock.utc())
        self._invalid_since: str | None = None
        self._problems: tuple[str, ...] = ()
        self._needs_restart: tuple[str, ...] = ()

    def view(self) -> ConfigFileView | None:
        """The file beside what is in force."""
        if self._disk is None:
            return None
        return ConfigFileView(
            path=str(self._disk.path),
            read_at=self._read_at,
            watched=self._live.server.watch_config,
            invalid_since=self._invalid_since,
            problems=self._problems,
            needs_restart=self._needs_restart,
        )

    async def start(self, *, idempotency_key: str | None = None) -> OperationView:
        """Begin to apply what lies on the disk; one that still waits for its turn does it all.

        Raises:
            ConfigError: It cannot be used; nothing was changed.
            ConflictError: There is no file.
        """
        await self._read()
        async with self._asking:
            if idempotency_key is None and (queued := await self._queued()) is not None:
                return queued
            operation = await self._operations.start(
                "reload", {}, self._run, idempotency_key=idempotency_key
            )
            self._latest = operation.id
            return operation

    async def hear(self) -> None:
        """Do as ``start``, for who cannot be answered: what is wrong is in the log."""
        try:
            await self.start()
        except ConfigError:
            return  # told where it was read
        except MtpdError as error:
            log.warning("config.not_read", reason=str(error), hint=error.hint)

    async def watch(self) -> None:
        """Apply what is saved, while that is configured, until cancelled."""
        seen: Look | None = None
        while self._disk is not None:
            if self._live.server.watch_config:
                seen = await self._look(self._disk, seen)
            else:
                seen = None
            await anyio.sleep(self._look_s)

    # Inside -------------------------------------------------------------------------

    async def _look(self, disk: ConfigOnDisk, seen: Look | None) -> Look:
        stamp = await to_thread.run_sync(disk.stamp, self._live.now.sources)
        if seen is None:
            return Look(stamp)
        now, rested = look(seen, stamp, self._clock.now(), quiet_s=QUIET_S)
        if rested:
            await self._saved()
        return now

    async def _saved(self) -> None:
        """Files have come to rest; where nothing in them is different, nothing is done."""
        try:
            config = await self._read()
        except ConfigError:
            return
        if revised(self._live.now, config) != self._live.now or (
            diff(self._live.now, config).needs_restart != self._needs_restart
        ):
            await self.hear()

    async def _queued(self) -> OperationView | None:
        found = None if self._latest is None else await self._operations.get(self._latest)
        return found if found is not None and found.state == "queued" else None

    async def _read(self) -> Config:
        """What lies on the disk, if it can be used; remembers whether it can."""
        if self._disk is None:
            msg = "this daemon was started without a configuration file"
            raise ConflictError(msg, hint="mtpd serve --config FILE reads one")
        running = {one.profile for one in self._engines() if one.state not in AT_REST}
        try:
            config = await to_thread.run_sync(_usable, self._disk, self._live.now, running)
        except ConfigError as error:
            self._refused(error)
            raise
        self._problems, self._invalid_since = (), None
        return config

    def _refused(self, error: ConfigError) -> None:
        self._problems = error.problems
        self._invalid_since = self._invalid_since or rfc3339(self._clock.utc())
        log.error("config.refused", problems=list(error.problems), hint=error.hint)
        self._publish(ConfigRefused(problems=error.problems))

    async def _run(self, progress: Progress) -> dict[str, Json]:
        progress.report(0, None, "reading the configuration")
        config = await self._read()
        old, changes = self._live.now, diff(self._live.now, config)
        warnings = await to_thread.run_sync(_warnings, old, config, changes)
        for warning in warnings:
            log.warning("config.remark", text=warning)
        result: dict[str, Json] = {
            "reason": changes.reason,
            "changes": encode(changes),
            "warnings": list(warnings),
        }
        decision = None
        if changes.applied or changes.needs_restart != self._needs_restart:
            decision = await self._recorder.decide(
                Decision(
                    act=Act.RELOAD,
                    subject=SUBJECT,
                    arm=None,
                    reason=changes.reason,
                    evidence=tuple(str(value) for value in changes.values),
                ),
                operation_id=progress.operation_id,
                inputs={"changes": encode(changes)},
            )
        progress.report(0, None, "draining what runs otherwise than is configured now")
        renewals = await self._applying.apply(changes, config)
        self._read_at, self._needs_restart = rfc3339(self._clock.utc()), changes.needs_restart
        if decision is not None:
            await self._journal.outcome(decision.id, _outcome(renewals))
            self._publish(_event(changes))
        _need_all(renewals)
        return {
            **result,
            "decision": None if decision is None else decision.id,
            "engines": encode(renewals),
        }


def _usable(disk: ConfigOnDisk, old: Config, running: Iterable[str]) -> Config:
    """What lies on the disk, if every model that runs could run with it.

    Raises:
        ConfigError: With every problem.
    """
    config = disk.read()
    changed = [name for name in diff(old, config).changed if name in running]
    problems = tuple(problem for name in changed for problem in problems_of(config, name))
    if problems:
        hint = "the model runs: it is not stopped for a file that cannot be served"
        raise ConfigError(problems, hint=hint)
    return config


def _warnings(old: Config, config: Config, changes: Changes) -> tuple[str, ...]:
    """What is odd about what is new, and no reason to refuse it."""
    known = not_honoured(old)
    names = (*changes.added, *changes.changed)
    return (
        *(problem for name in names for problem in problems_of(config, name)),
        *(remark for remark in not_honoured(config) if remark not in known),
    )


def _outcome(renewals: Sequence[Renewal]) -> str:
    return "; ".join(f"{one.profile} {one.outcome}" for one in renewals) or "in force"


def _event(changes: Changes) -> ConfigReloaded:
    return ConfigReloaded(
        added=changes.added,
        removed=changes.removed,
        changed=changes.changed,
        needs_restart=changes.needs_restart,
    )


def _need_all(renewals: Sequence[Renewal]) -> None:
    failed = [one for one in renewals if one.outcome is Renewed.FAILED]
    if failed:
        told = "; ".join(f"{one.profile}: {one.why}" for one in failed)
        msg = f"the configuration is in force, but an engine does not start with it: {told}"
        raise MtpdError(msg, hint="correct its profile and reload again; until then it gets 503")
