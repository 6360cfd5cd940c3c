"""What one daemon knows and remembers: its store, its card, its plans; wired, nothing runs yet.

Below ``mtpd.house``, which serves from it. Covers wiring; takes no decision.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from mtpd.control.choices import Choices
from mtpd.control.contests import Contests
from mtpd.control.hashing import ModelHashes
from mtpd.control.lastgood import LastGood
from mtpd.control.recorder import StoreRecorder
from mtpd.control.residency import Residencies
from mtpd.control.shapes import DeviceBudget, MemoryPlanner
from mtpd.control.telemetry import Telemetry
from mtpd.control.waking import Waking
from mtpd.engine.launch import LaunchPlanner
from mtpd.events import StoreChanged
from mtpd.gpu.identity import pinned
from mtpd.listen import free_port
from mtpd.proxy.seats import Seating
from mtpd.store.files import FileDigests
from mtpd.store.journal import Journal
from mtpd.store.ledger import Ledger
from mtpd.store.private_file import sweep
from mtpd.store.samples import Measurements
from mtpd.store.snapshot import NAME, SnapshotFile
from mtpd.store.start_notes import StartNotes
from mtpd.supervise import orphans
from mtpd.supervise.identity import boot_id
from mtpd.supervise.logfile import log_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mtpd.bus import Bus
    from mtpd.clock import Clock
    from mtpd.config.directories import Directories
    from mtpd.config.live import LiveConfig
    from mtpd.events import Event
    from mtpd.faults import Faults
    from mtpd.gpu.card import Card
    from mtpd.store.db import Database
    from mtpd.supervise.orphans import OpenRow, Survivor
    from mtpd.types import EngineBinary

__all__ = ["Ground"]


class Ground:
    """The parts that need no engine.

    Args:
        publish: Takes every event.
        running: Whether an engine has a process.
        busy: Whether reading beside it would slow a request, or falsify a measurement.
    """

    def __init__(
        self,
        config: LiveConfig,
        directories: Directories,
        engine: EngineBinary,
        store: Database,
        bus: Bus,
        *,
        card: Card,
        clock: Clock,
        faults: Faults,
        hash_delay_s: float,
        foreign_env: Mapping[str, str],
        publish: Callable[[Event], None],
        running: Callable[[], bool],
        busy: Callable[[], bool],
    ) -> None:
        log_dir = directories.state / "logs"
        self.measurements = Measurements(db=store, clock=clock)
        self.journal = Journal(db=store, clock=clock, faults=faults)
        self._store, self._publish, self._boot_id = store, publish, boot_id()
        self._swept = (directories.state / NAME, directories.runtime / store.path.name)
        self.ledger = Ledger(
            db=store,
            clock=clock,
            boot_id=self._boot_id,
            faults=faults,
            notes=StartNotes(directories.runtime, state=directories.state, boot_id=self._boot_id),
        )
        self.waking = Waking(clock=clock, publish=publish)
        self.telemetry = Telemetry(
            card=card,
            hardware=config.hardware,
            clock=clock,
            publish=publish,
            serving=running,
        )
        self.planner = LaunchPlanner(
            config=config,
            binary=engine,
            device=card.key,
            device_present=card.is_gpu,
            sockets=directories.runtime,
            home=directories.cache,
            driver=card.device.driver,
            power_cap_w=card.power_cap_w,
            new_token=lambda: secrets.token_hex(32),
            free_port=free_port,
            device_env=pinned(card.device),
            foreign_env=foreign_env,
        )
        self.memory = MemoryPlanner(
            config=config,
            binary=engine,
            budget=DeviceBudget.of(card, config, read=self.telemetry.sampler.read_from_thread),
            alone=lambda: not running(),
            log_of=lambda profile: log_path(log_dir, profile, card.key),
        )
        self.seating = Seating(config, device_for=lambda _profile: card.key)
        self.residencies = Residencies(
            config=config,
            planner=self.planner,
            memory=self.memory,
            seating=self.seating,
            measurements=self.measurements,
            card=card,
            sampler=self.telemetry.sampler,
            clock=clock,
        )
        self.choices = Choices(
            config,
            self.planner.files,
            self.residencies.instead,
            changed=self._chosen,
        )
        self.hashes = ModelHashes(
            config=config,
            planner=self.planner,
            digests=FileDigests(db=store, clock=clock),
            clock=clock,
            busy=busy,
            delay_s=hash_delay_s,
        )
        self.recorder = StoreRecorder(
            measurements=self.measurements,
            journal=self.journal,
            bus=bus,
            describe=self.hashes.fields,
        )
        self.last_good = LastGood(
            config=config,
            choices=self.choices,
            recorder=self.recorder,
            digest=self.planner.digest,
            file=SnapshotFile(directories.state),
            clock=clock,
        )
        self.contests = Contests(
            config=config,
            choices=self.choices,
            digest=self.planner.digest,
            memory=self.memory.forecast,
            misfit=self.residencies.instead,
            journal=self.journal,
            recorder=self.recorder,
            clock=clock,
        )

    async def recover(self) -> tuple[Survivor, ...]:
        """End what a killed daemon left, and tell from now on when the disk takes no writes.

        Returns what could not be ended.
        """
        for path in self._swept:
            sweep(path)
        self._store.attach(
            settled=self.ledger.settle,
            changed=lambda why: self._publish(StoreChanged(degraded=why)),
        )
        rows: list[OpenRow] = [*await self.ledger.open_rows(), *await self.ledger.noted()]
        return await orphans.reap(rows, ledger=self.ledger, boot=self._boot_id)

    def _chosen(self) -> None:
        """Other choices may stand."""
        self.last_good.hear()
