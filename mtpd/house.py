"""The parts of one daemon, wired in reading order; nothing runs yet.

Beside ``mtpd.app`` the only place that constructs. Covers wiring; takes no decision.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from mtpd.api import problem
from mtpd.api.application import application
from mtpd.api.gate import Gate
from mtpd.control.applying import Applying
from mtpd.control.backend import Control
from mtpd.control.device import SwitchboardDevice
from mtpd.control.effects import Effects
from mtpd.control.history import History
from mtpd.control.idle import IdleUnloader
from mtpd.control.live import LiveTraffic
from mtpd.control.loop import ControlLoop
from mtpd.control.metering import Meter
from mtpd.control.models import ModelReports
from mtpd.control.parts import Parts
from mtpd.control.preload import Preloader
from mtpd.control.quality import QualityDesk
from mtpd.control.quarantine import quarantined, rules
from mtpd.control.recipes import Recipes
from mtpd.control.reload import Reloader
from mtpd.control.restore import restore
from mtpd.control.sensing import Sensing
from mtpd.control.toolbox import Toolbox
from mtpd.control.tuning import Tuning
from mtpd.engine.client import EngineClient
from mtpd.engine.heard import RequestFacts
from mtpd.engine.kept import PromptCaches
from mtpd.engine.told import KEPT, notes
from mtpd.events import EngineTransition, MachineResumed
from mtpd.ground import Ground
from mtpd.logfeed import LogFeed
from mtpd.metrics.look import look
from mtpd.metrics.registry import HEADERS, Metrics
from mtpd.operations import Operations
from mtpd.proxy.open_requests import OpenRequests
from mtpd.proxy.quarantine import Quarantine
from mtpd.proxy.switch import Switchboard
from mtpd.store.live_states import LiveStates
from mtpd.store.operations_table import OperationRows
from mtpd.store.quality import QualityRows
from mtpd.supervise.probe import EngineProbe
from mtpd.supervise.pulse import Pulse
from mtpd.supervise.runner import EngineActor
from mtpd.supervise.spawn import ShimSpawner
from mtpd.supervise.tool_run import ToolRunner
from mtpd.web.pages import Pages

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
    from mtpd.supervise.housekeeping import Housekeeping
    from mtpd.types import EngineBinary, EngineKey
    from mtpd.units import EngineId

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
        keeping: Housekeeping,
        disk: ConfigOnDisk | None = None,
    ) -> None:
        self._config, self._bus, self._clock, self._faults = config, bus, clock, faults
        self._log_dir = directories.state / "logs"
        self._store, self._keeping = store, keeping
        self._spawner = ShimSpawner(groups=keeping.groups)
        self.requests = OpenRequests(clock)
        self.feed = LogFeed(clock=clock, marked=KEPT)
        ground = self.ground = Ground(
            config,
            directories,
            engine,
            store,
            bus,
            card=card,
            clock=clock,
            faults=faults,
            hash_delay_s=hash_delay_s,
            foreign_env=foreign_env,
            publish=self._publish,
            running=self._running,
            busy=self._busy,
        )
        rows = OperationRows(db=store)
        self.operations = Operations(rows=rows, bus=bus, clock=clock, describe=problem.described)
        self.metrics = Metrics(now=clock.now)
        self._gate = Gate(
            tokens=tokens, remote=config.server.remote, clock=clock, count=self.metrics.refused
        )
        self._probe, self._heard, self._kept = EngineProbe(), RequestFacts(), PromptCaches()
        self.quarantine = Quarantine(
            clock=clock, rules=partial(rules, config), told=partial(quarantined, ground.recorder)
        )
        self.idle = IdleUnloader(
            config=config, recorder=ground.recorder, journal=ground.journal, clock=clock
        )
        self.switchboard: Switchboard[EngineClient] = Switchboard(
            make_actor=self._actor,
            plan_for=ground.residencies.plan,
            arm_for=ground.choices.arm_for,
            seating=ground.seating,
            slots_for=self._slots,
            connect=EngineClient,
            limits=config.server,
            clock=clock,
            feasible=ground.residencies.feasible,
            is_current=ground.planner.is_current,
            asking=self.idle.asking,
            account=ground.residencies.account,
            decide=ground.recorder.decide,
        )
        self.preloader = Preloader(
            config=config,
            choices=ground.choices,
            bring_up=self.switchboard.bring_up,
            recorder=ground.recorder,
            journal=ground.journal,
        )
        held = SwitchboardDevice(
            switchboard=self.switchboard, heard=self._heard, refusal=ground.telemetry.gates.refusal
        )
        self.tuning = Tuning(
            config=config,
            calibrator=ground.telemetry.calibrator(lambda: config.workloads),
            recorder=ground.recorder,
            hold=held.hold,
            serving=held.serving,
            chosen=ground.choices.chosen,
            adopt=ground.choices.adopt,
            busy=card.busy,
            memory=ground.memory.forecast,
            awake=ground.waking.awake,
        )
        runner = ToolRunner(self._spawner, new_id=self._keeping.new_id)
        toolbox = Toolbox(config=config, planner=ground.planner, runner=runner)
        self.quality = QualityDesk(
            config=config,
            toolbox=toolbox,
            rows=QualityRows(db=store, clock=clock),
            operations=self.operations,
            hold=held.hold,
            serving=held.serving,
            gate=ground.telemetry.gates.measuring,
            sha256=ground.hashes.sha256,
            awake=ground.waking.awake,
        )
        self.recipes = Recipes(
            config=config,
            toolbox=toolbox,
            quality=self.quality,
            operations=self.operations,
            forecast=ground.memory.forecast,
        )
        self.history = History(
            sampler=ground.telemetry.sampler,
            queue=self.switchboard.queue,
            requests=self.requests,
            limits=ground.telemetry.limits(),
            clock=clock,
        )
        self.traffic = LiveTraffic(
            config=config,
            states=LiveStates(db=store, clock=clock),
            meter=Meter(
                self.switchboard.beside, told=self.history.counted, seen=self.metrics.drafted
            ),
            around=ground.telemetry.sampler.around,
            on_card=card.is_gpu,
            clock=clock,
        )
        self.loop = ControlLoop(
            config=config,
            traffic=self.traffic,
            sensing=Sensing(
                traffic=self.traffic,
                choices=ground.choices,
                planner=ground.planner,
                memory=ground.memory,
                misfit=ground.residencies.instead,
                journal=ground.journal,
                recorder=ground.recorder,
                measurements=ground.measurements,
                contests=ground.contests,
                cap_w=ground.telemetry.cap_w,
                gates=ground.telemetry.gates.views,
                clock=clock,
            ),
            effects=Effects(
                config=config,
                board=self.switchboard,
                operations=self.operations,
                recorder=ground.recorder,
                journal=ground.journal,
                measurements=ground.measurements,
                choices=ground.choices,
                tuning=self.tuning,
                clock=clock,
                on_switched=self.metrics.switched,
            ),
            recorder=ground.recorder,
            board=self.switchboard,
            operations=self.operations,
            clock=clock,
        )

        applying = Applying(
            live=config,
            board=self.switchboard,
            choices=ground.choices,
            restore=self._restore,
            learn=ground.residencies.learn,
        )
        self.reloader = Reloader(
            disk=disk,
            live=config,
            applying=applying,
            engines=self.switchboard.engines,
            operations=self.operations,
            recorder=ground.recorder,
            journal=ground.journal,
            publish=self._publish,
            clock=clock,
        )

    async def recover(self) -> None:
        """End what a killed daemon left, and adopt the choices that still hold."""
        await self._keeping.before(await self.ground.recover())
        await self.ground.memory.look()
        await self.ground.residencies.restore(self.ground.ledger)
        await self._restore()
        if self._store.lost is not None:
            await self.ground.last_good.bring_back(self._store.lost)
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
                measurements=self.ground.measurements,
                journal=self.ground.journal,
                recorder=self.ground.recorder,
                choices=self.ground.choices,
                tuning=self.tuning,
                reload=self.reloader,
                reports=ModelReports(
                    config=self._config,
                    planner=self.ground.planner,
                    measurements=self.ground.measurements,
                    choices=self.ground.choices,
                    hashes=self.ground.hashes,
                    memory=self.ground.memory,
                    account=self.ground.residencies.account,
                    engines=self.switchboard.engines,
                    quality=self.quality.latest,
                ),
                gates=self.ground.telemetry.gates.views,
                devices=self.ground.telemetry.devices,
                on_switched=self.metrics.switched,
                kept=self._kept,
                quarantine=self.quarantine,
                quality=self.quality,
                recipes=self.recipes,
                live=self.loop.view,
                feed=self.feed,
                requests=self.requests,
                history=self.history,
                degraded=lambda: self._store.troubles,
            )
        )

    def web(self, control: Control) -> web.Application:
        """Control plane, data plane and dashboard in one application."""

        async def scrape(_request: web.Request) -> web.Response:
            sampler, memory = self.ground.telemetry.sampler, self.ground.memory
            shown = await look(control, sampler, memory, self._store, self._bus)
            return web.Response(body=self.metrics.text(shown), headers=HEADERS)

        dashboard = Pages.read()
        app = application(
            control,
            config=self._config,
            choices=self.ground.choices,
            board=self.switchboard,
            feed=self.feed,
            metrics=scrape,
            on_finished=self._publish,
            clock=self._clock,
            instance=self._bus.boot,
            gate=self._gate,
            quarantine=self.quarantine,
            public=dashboard.paths,
            requests=self.requests,
        )
        dashboard.mount(app)
        return app

    async def _restore(self, subjects: AbstractSet[str] | None = None) -> None:
        await restore(
            self._config,
            self.ground.choices,
            self.ground.recorder,
            self.ground.planner,
            subjects=subjects,
        )

    def _actor(self, key: EngineKey) -> EngineActor:
        return EngineActor(
            key=key,
            spawner=self._spawner,
            ledger=self.ground.ledger,
            clock=self._clock,
            faults=self._faults,
            probe=self._probe,
            log_dir=self._log_dir,
            on_event=self._publish,
            rng=random.random,
            new_id=self._keeping.new_id,
            on_fact=partial(self._hear, key.profile),
            on_lines=lambda engine, lines, facts: self.feed.add(
                key.profile, lines, engine_id=engine, notes=notes(facts)
            ),
            card=self.ground.residencies.keeper or self.ground.residencies.host,
            pulse=Pulse(ask=self._probe.answers, woken=self.ground.waking.woken),
            record=self.ground.residencies.record,
        )

    def _hear(self, profile: str, engine: EngineId, fact: Fact) -> None:
        self._heard.hear(engine, fact)
        self._kept.hear(engine, fact)
        self.ground.memory.hear(profile, fact)

    def _publish(self, event: Event) -> None:
        self.metrics.observe(event)
        self._bus.publish(event)
        self.idle.observe(event)
        self.history.observe(event)
        self.loop.hear(event)
        if isinstance(event, EngineTransition | MachineResumed):
            self.ground.telemetry.sampler.hurry()

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
