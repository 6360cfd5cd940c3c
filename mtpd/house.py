"""The parts of one daemon, wired in reading order; nothing runs yet.

Beside ``mtpd.app`` the only place that constructs. Covers wiring; takes no decision.
"""

from __future__ import annotations

import random
import secrets
import uuid
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from mtpd import metrics as prometheus
from mtpd.api import problem
from mtpd.api.application import application
from mtpd.api.gate import Gate
from mtpd.control.account import MemoryAccount
from mtpd.control.applying import Applying
from mtpd.control.backend import Control
from mtpd.control.choices import Choices
from mtpd.control.device import SwitchboardDevice
from mtpd.control.effects import Effects
from mtpd.control.hashing import ModelHashes
from mtpd.control.idle import IdleUnloader
from mtpd.control.live import LiveTraffic
from mtpd.control.loop import ControlLoop
from mtpd.control.metering import Meter
from mtpd.control.models import ModelReports
from mtpd.control.parts import Parts
from mtpd.control.preload import Preloader
from mtpd.control.quarantine import quarantined, rules
from mtpd.control.recorder import StoreRecorder
from mtpd.control.reload import Reloader
from mtpd.control.residency import Residencies
from mtpd.control.restore import restore
from mtpd.control.sensing import Sensing
from mtpd.control.shapes import DeviceBudget, MemoryPlanner
from mtpd.control.telemetry import Telemetry
from mtpd.control.tuning import Tuning
from mtpd.engine.client import EngineClient
from mtpd.engine.heard import RequestFacts
from mtpd.engine.kept import PromptCaches
from mtpd.engine.launch import LaunchPlanner
from mtpd.events import EngineTransition
from mtpd.gpu.host import HostProvider
from mtpd.gpu.identity import pinned
from mtpd.listen import free_port
from mtpd.logfeed import LogFeed
from mtpd.metrics import Metrics
from mtpd.operations import Operations
from mtpd.proxy.quarantine import Quarantine
from mtpd.proxy.seats import Seating
from mtpd.proxy.switch import Switchboard
from mtpd.store.files import FileDigests
from mtpd.store.journal import Journal
from mtpd.store.ledger import Ledger
from mtpd.store.live_states import LiveStates
from mtpd.store.operations_table import OperationRows
from mtpd.store.samples import Measurements
from mtpd.supervise import orphans
from mtpd.supervise.identity import boot_id
from mtpd.supervise.logfile import log_path
from mtpd.supervise.probe import EngineProbe
from mtpd.supervise.pulse import Pulse
from mtpd.supervise.runner import EngineActor
from mtpd.supervise.spawn import ShimSpawner
from mtpd.units import EngineId

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from mtpd.bus import Bus
    from mtpd.clock import Clock
    from mtpd.config.directories import Directories
    from mtpd.config.disk import ConfigOnDisk
    from mtpd.config.live import LiveConfig
    from mtpd.control.facts import DaemonFacts
    from mtpd.engine.facts import Fact
    from mtpd.events import Event
    from mtpd.faults import Faults
    from mtpd.gpu.card import Card
    from mtpd.store.db import Database
    from mtpd.store.token_file import Tokens
    from mtpd.types import EngineBinary, EngineKey
    from mtpd.views import StatusView

__all__ = ["House"]


class House:
    """The parts of one daemon, wired; nothing runs yet."""

    def __init__(
        self,
        config: LiveConfig,
        directories: Directories,
        engine: EngineBinary,
        store: Database,
        bus: Bus,
        *,
        card: Card,
        tokens: Tokens,
        clock: Clock,
        faults: Faults,
        hash_delay_s: float,
        foreign_env: Mapping[str, str],
        disk: ConfigOnDisk | None = None,
    ) -> None:
        self._config, self._bus, self._clock, self._faults = config, bus, clock, faults
        self._log_dir = directories.state / "logs"
        self._status: StatusView | None = None
        self.feed = LogFeed()
        self.measurements = Measurements(db=store, clock=clock)
        self.journal = Journal(db=store, clock=clock, faults=faults)
        self._ledger = Ledger(db=store, clock=clock, boot_id=boot_id(), faults=faults)
        rows = OperationRows(db=store)
        self.operations = Operations(rows=rows, bus=bus, clock=clock, describe=problem.described)
        self.telemetry = Telemetry(
            card=card,
            hardware=config.hardware,
            clock=clock,
            publish=self._publish,
            serving=self._running,
        )
        self.metrics = Metrics(snapshot=lambda: self._status, dropped_readers=lambda: bus.dropped)
        self.metrics.registry.register(self.telemetry.collector)
        self._gate = Gate(
            tokens=tokens, remote=config.server.remote, clock=clock, count=self.metrics.refused
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
            new_token=lambda: secrets.token_hex(16),
            free_port=free_port,
            device_env=pinned(card.device),
            foreign_env=foreign_env,
        )
        self.memory = MemoryPlanner(
            config=config,
            binary=engine,
            budget=DeviceBudget.of(card, config, read=self.telemetry.sampler.read_from_thread),
            alone=lambda: not self._running(),
            log_of=lambda profile: log_path(self._log_dir, profile, card.key),
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
        self.choices = Choices(config, self.planner.files, self.residencies.instead)
        self._probe, self._heard, self._kept = EngineProbe(), RequestFacts(), PromptCaches()
        self.hashes = ModelHashes(
            config=config,
            planner=self.planner,
            digests=FileDigests(db=store, clock=clock),
            clock=clock,
            busy=self._busy,
            delay_s=hash_delay_s,
        )
        self.recorder = StoreRecorder(
            measurements=self.measurements,
            journal=self.journal,
            bus=bus,
            describe=self.hashes.fields,
        )
        self.quarantine = Quarantine(
            clock=clock, rules=partial(rules, config), told=partial(quarantined, self.recorder)
        )
        self.idle = IdleUnloader(
            config=config, recorder=self.recorder, journal=self.journal, clock=clock
        )
        self.switchboard: Switchboard[EngineClient] = Switchboard(
            make_actor=self._actor,
            plan_for=self.residencies.plan,
            arm_for=self.choices.arm_for,
            seating=self.seating,
            slots_for=self._slots,
            connect=EngineClient,
            limits=config.server,
            clock=clock,
            feasible=self.residencies.feasible,
            is_current=self.planner.is_current,
            asking=self.idle.asking,
            account=MemoryAccount(
                config=config,
                memory=self.memory,
                feasible=self.residencies.feasible,
                keeper=self.residencies.keeper,
                host=HostProvider().memory,
            ),
            decide=self.recorder.decide,
        )
        self.preloader = Preloader(
            config=config,
            choices=self.choices,
            bring_up=self.switchboard.bring_up,
            recorder=self.recorder,
            journal=self.journal,
        )
        held = SwitchboardDevice(
            switchboard=self.switchboard, heard=self._heard, refusal=self.telemetry.gates.refusal
        )
        self.tuning = Tuning(
            config=config,
            calibrator=self.telemetry.calibrator(lambda: config.workloads),
            recorder=self.recorder,
            hold=held.hold,
            serving=held.serving,
            chosen=self.choices.chosen,
            adopt=self.choices.adopt,
            busy=card.busy,
            memory=self.memory.forecast,
        )
        self.traffic = LiveTraffic(
            config=config,
            states=LiveStates(db=store, clock=clock),
            meter=Meter(self.switchboard.beside),
            around=self.telemetry.sampler.around,
            on_card=card.is_gpu,
            clock=clock,
        )
        self.loop = ControlLoop(
            config=config,
            traffic=self.traffic,
            sensing=Sensing(
                traffic=self.traffic,
                choices=self.choices,
                planner=self.planner,
                memory=self.memory,
                misfit=self.residencies.instead,
                journal=self.journal,
                recorder=self.recorder,
                measurements=self.measurements,
                cap_w=self.telemetry.cap_w,
                gates=self.telemetry.gates.views,
                clock=clock,
            ),
            effects=Effects(
                config=config,
                board=self.switchboard,
                operations=self.operations,
                recorder=self.recorder,
                journal=self.journal,
                measurements=self.measurements,
                choices=self.choices,
                tuning=self.tuning,
                clock=clock,
                on_switched=self.metrics.switched,
            ),
            recorder=self.recorder,
            board=self.switchboard,
            operations=self.operations,
            clock=clock,
        )

        applying = Applying(
            live=config,
            board=self.switchboard,
            choices=self.choices,
            restore=self._restore,
            learn=self.residencies.learn,
        )
        self.reloader = Reloader(
            disk=disk,
            live=config,
            applying=applying,
            engines=self.switchboard.engines,
            operations=self.operations,
            recorder=self.recorder,
            journal=self.journal,
            publish=self._publish,
            clock=clock,
        )

    async def recover(self) -> None:
        """End what a killed daemon left, and adopt the choices that still hold."""
        await orphans.reap(await self._ledger.open_rows(), ledger=self._ledger, boot=boot_id())
        await self.memory.look()
        await self.residencies.restore(self._ledger)
        await self._restore()
        await self.traffic.restore()

    def control(self, facts: DaemonFacts) -> Control:
        """The backend of the API, once the addresses are known."""
        return Control(
            Parts(
                facts=facts,
                config=self._config,
                clock=self._clock,
                bus=self._bus,
                switchboard=self.switchboard,
                operations=self.operations,
                measurements=self.measurements,
                journal=self.journal,
                recorder=self.recorder,
                choices=self.choices,
                tuning=self.tuning,
                reload=self.reloader,
                reports=ModelReports(
                    config=self._config,
                    planner=self.planner,
                    measurements=self.measurements,
                    choices=self.choices,
                    hashes=self.hashes,
                    memory=self.memory,
                    engines=self.switchboard.engines,
                ),
                gates=self.telemetry.gates.views,
                devices=self.telemetry.devices,
                on_switched=self.metrics.switched,
                kept=self._kept,
                quarantine=self.quarantine,
                live=self.loop.view,
            )
        )

    def web(self, control: Control) -> web.Application:
        """Control plane and data plane in one application."""

        async def scrape(_request: web.Request) -> web.Response:
            self._status = await control.status()
            return web.Response(body=self.metrics.text(), headers=prometheus.HEADERS)

        return application(
            control,
            config=self._config,
            choices=self.choices,
            board=self.switchboard,
            feed=self.feed,
            metrics=scrape,
            on_finished=self._publish,
            clock=self._clock,
            instance=self._bus.boot,
            gate=self._gate,
            quarantine=self.quarantine,
        )

    async def _restore(self, subjects: AbstractSet[str] | None = None) -> None:
        await restore(self._config, self.choices, self.journal, self.planner, subjects=subjects)

    def _actor(self, key: EngineKey) -> EngineActor:
        return EngineActor(
            key=key,
            spawner=ShimSpawner(),
            ledger=self._ledger,
            clock=self._clock,
            faults=self._faults,
            probe=self._probe,
            log_dir=self._log_dir,
            on_event=self._publish,
            rng=random.random,
            new_id=lambda: EngineId(uuid.uuid4().hex),
            on_fact=partial(self._hear, key.profile),
            on_lines=partial(self.feed.add, key.profile),
            card=self.residencies.keeper,
            pulse=Pulse(ask=self._probe.answers),
            record=self.residencies.record,
        )

    def _hear(self, profile: str, engine: EngineId, fact: Fact) -> None:
        self._heard.hear(engine, fact)
        self._kept.hear(engine, fact)
        self.memory.hear(profile, fact)

    def _publish(self, event: Event) -> None:
        self.metrics.observe(event)
        self._bus.publish(event)
        self.idle.observe(event)
        self.loop.hear(event)
        if isinstance(event, EngineTransition):
            self.telemetry.sampler.hurry()

    def _slots(self, profile: str) -> int:
        """Requests that an engine works on at once; 1 for a model that was removed."""
        found = self._config.profiles.get(profile)
        return 1 if found is None else found.slots

    def _running(self) -> bool:
        return any(one.pid is not None for one in self.switchboard.engines())

    def _busy(self) -> bool:
        """Whether reading beside it would slow a request, or falsify a measurement."""
        queue = self.switchboard.queue()
        return queue.in_flight + queue.waiting > 0 or self.operations.current is not None
