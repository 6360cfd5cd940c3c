"""Makes measurements and decisions durable, and tells everybody, in that order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from anyio import to_thread

from mtpd.control.deciding import DepthInputs, PoolInputs
from mtpd.control.recorded import decode_inputs
from mtpd.control.standing import Standing
from mtpd.events import DecisionMade, MeasurementTaken
from mtpd.store.samples import Conditions, MeasurementFilter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mtpd.bus import Bus
    from mtpd.calibrate import Repetition
    from mtpd.gpu.window import Around
    from mtpd.store.journal import Journal
    from mtpd.store.samples import Measurements
    from mtpd.views import DecisionView, Json, MeasurementView
    from tuner.types import Decision

    Describe = Callable[[str, str], Awaitable[dict[str, Json] | None]]

__all__ = ["COMPARED", "StoreRecorder"]

log = structlog.get_logger()

COMPARED = "compared"
"""Where the inputs of an automatic decision about a pool hold what it compared."""


class StoreRecorder:
    """The journal's and the measurements' only caller.

    Args:
        describe: The named fields of a profile's fingerprint, by its digest, where known.
    """

    def __init__(
        self,
        *,
        measurements: Measurements,
        journal: Journal,
        bus: Bus,
        describe: Describe,
    ) -> None:
        self._measurements = measurements
        self._journal = journal
        self._bus = bus
        self._describe = describe

    def sink(self, operation_id: str) -> _StoreSink:
        """Where an operation's repetitions go."""
        return _StoreSink(self._measurements, self._bus, self._describe, operation_id)

    async def standing(self, decision_id: int) -> Standing | None:
        """What a decision about a depth rests on; None where that was not recorded."""
        decision = await self._journal.get(decision_id)
        recorded = await self._journal.inputs(decision_id)
        if decision is None or recorded is None:
            return None
        rests_on = recorded[1].get("rests_on")
        if isinstance(rests_on, int):
            return await self.standing(rests_on)
        cells = MeasurementFilter(ids=decision.measurement_ids)
        found = await self._measurements.observations(cells)
        inputs = await to_thread.run_sync(decode_inputs, recorded[1], found)
        if not isinstance(inputs, DepthInputs):
            return None
        verdicts = recorded[1].get("verdicts")
        return Standing(
            decision_id=decision_id,
            told=inputs.told,
            measurements=await self._measurements.list(cells),
            verdicts=verdicts if isinstance(verdicts, dict) else {},
        )

    async def latest_choice(self, subject: str, fingerprint: str) -> DecisionView | None:
        """The newest choice of a pool or profile that rests on a measurement of this kind."""
        return await self._journal.latest_choice(subject, fingerprint)

    async def compared(self, decision: DecisionView) -> PoolInputs | None:
        """What a decision about a pool rests on; None where that was not recorded."""
        recorded = await self._journal.inputs(decision.id)
        cells = MeasurementFilter(ids=decision.measurement_ids)
        observations = await self._measurements.observations(cells)
        asked = {} if recorded is None else recorded[1]
        nested = asked.get(COMPARED)
        held = nested if isinstance(nested, dict) else asked
        inputs = await to_thread.run_sync(decode_inputs, held, observations)
        return inputs if isinstance(inputs, PoolInputs) else None

    async def decide(
        self,
        decision: Decision,
        *,
        measurements: Sequence[MeasurementView] = (),
        operation_id: str | None = None,
        inputs: dict[str, Json] | None = None,
    ) -> DecisionView:
        """Journal a decision, log its sentence, and tell everybody."""
        view = await self._journal.append(
            decision,
            measurement_ids=[m.id for m in measurements],
            operation_id=operation_id,
            inputs=inputs or {},
        )
        log.info(
            "decision.made",
            act=view.act,
            subject=view.subject,
            arm=str(decision.arm),
            reason=view.reason,
            actor=view.actor,
        )
        self._bus.publish(DecisionMade(decision=view))
        return view


class _StoreSink:
    def __init__(
        self,
        measurements: Measurements,
        bus: Bus,
        describe: Describe,
        operation_id: str,
    ) -> None:
        self._measurements = measurements
        self._bus = bus
        self._describe = describe
        self._operation_id = operation_id

    async def add(self, repetition: Repetition) -> MeasurementView:
        """Store one repetition durably, then publish it."""
        number = await self._measurements.add(
            repetition.observation,
            acceptance_source=repetition.source.value,
            operation_id=self._operation_id,
            prompt_digest=repetition.prompt_digest,
            conditions=_conditions(repetition.around),
            fingerprint_fields=await self._describe(
                repetition.observation.arm.profile, repetition.observation.fingerprint
            ),
        )
        view = await self._measurements.get(number)
        assert view is not None  # noqa: S101  # it was written on the line above
        self._bus.publish(MeasurementTaken(measurement=view))
        return view


def _conditions(around: Around) -> Conditions:
    return Conditions(
        edge_start_c=around.edge_start_c,
        edge_end_c=around.edge_end_c,
        junction_max_c=around.junction_max_c,
        power_mean_w=around.power_mean_w,
        power_cap_w=around.power_cap_w,
        power_idle_w=around.power_idle_w,
    )
