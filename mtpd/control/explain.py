"""Rebuilds the chain from stored cells to a decision's sentence. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.control.chain import ModelStory, model_chain
from mtpd.control.deciding import PROBE, DepthInputs, PoolInputs, decide
from mtpd.control.recorded import AUTOMATIC, decode_inputs, difference
from mtpd.control.rows import depth_rows
from mtpd.control.standing import CUT_SHORT
from mtpd.explanation_views import ExplanationView, ReplayView
from mtpd.types import Absent
from tuner.plan import History
from tuner.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mtpd.views import DecisionView, DepthRowView, Json, MeasurementView
    from tuner.types import Observation

__all__ = ["explanation"]

_RULES = {
    "keep": "the incumbent stays unless an arm is proven to be more than 2 % faster",
    "reject": "an arm that is not proven to be in device memory is never chosen",
}
_CHOICE = (
    "the highest mean wins; an arm that needs less memory is preferred where the chance that"
    " it gives away more than 2 % is small"
)
_OFFLOAD = (
    "; an arm with layers on the CPU is accepted where it is proven to beat those in device memory"
)
_ORDERED = "an operator or the configuration named this arm"
_POOL = "the rules R0 to R5 for models, named in the sentence"
_LIVE = (
    "the rules of docs/live.md: beyond what is required with a probability of 95 %, while nobody"
    " asks, and within the restarts of a day"
)
_PROBE = "a probe chooses nothing; a depth pays if the 95 % interval of its gain is above 0"


def explanation(
    decision: DecisionView,
    measurements: Sequence[MeasurementView],
    observations: Sequence[Observation],
    recorded: Mapping[str, Json] | None = None,
) -> ExplanationView:
    """A decision with everything that it stands on, in the order of the argument.

    Args:
        decision: The journal row.
        measurements: The stored repetitions that it rests on.
        observations: The same, as the tuner takes them.
        recorded: The decision's inputs as the journal holds them.
    """
    rows = depth_rows(summarise(observations))
    notes = [
        f"note: {e}" for e in decision.evidence if e.startswith(("the machine was busy", CUT_SHORT))
    ]
    chain = [
        _measured(measurements),
        *(_row(row, measurements) for row in rows),
        *notes,
        decision.reason,
    ]
    if decision.outcome:
        chain.append(f"then: {decision.outcome}")
    inputs = decode_inputs(recorded or {}, observations)
    return ExplanationView(
        decision=decision,
        models=tuple(
            model_chain(story) for story in _stories(inputs, observations, recorded or {})
        ),
        rows=rows,
        measurements=tuple(measurements),
        rule=_rule(decision, inputs, measurements),
        replay=_replay(decision, inputs, measurements),
        chain=tuple(chain),
    )


def _stories(
    inputs: DepthInputs | PoolInputs | Absent,
    observations: Sequence[Observation],
    recorded: Mapping[str, Json],
) -> list[ModelStory]:
    found = recorded.get("verdicts")
    verdicts = found if isinstance(found, dict) else {}
    match inputs:
        case DepthInputs():
            return [
                ModelStory(
                    profile=inputs.subject,
                    history=inputs.told,
                    searched=inputs.history,
                    design=inputs.design,
                    memory_bytes=inputs.memory_bytes,
                    verdicts=verdicts,
                    row_cost=inputs.row_cost,
                )
            ]
        case PoolInputs():
            return [
                ModelStory(
                    profile=member.arm.profile,
                    history=member.history,
                    design=None,
                    memory_bytes={}
                    if member.memory_bytes is None
                    else {member.arm: member.memory_bytes},
                    verdicts=verdicts,
                    note=f"how its depth was found: mtpctl explain --subject {member.arm.profile}",
                    joined=False,
                )
                for member in inputs.members
            ]
        case Absent(reason=reason):
            names = dict.fromkeys(one.arm.profile for one in observations)
            return [
                ModelStory(
                    profile=name,
                    history=History(
                        observations=tuple(o for o in observations if o.arm.profile == name)
                    ),
                    design=None,
                    memory_bytes={},
                    verdicts={},
                    note=f"what was asked, and why, is not known: {reason}",
                )
                for name in names
            ]


def _rule(
    decision: DecisionView,
    inputs: DepthInputs | PoolInputs | Absent,
    measurements: Sequence[MeasurementView],
) -> str:
    if isinstance(inputs, PoolInputs):
        return _POOL
    if isinstance(inputs, DepthInputs) and inputs.method == PROBE:
        return _PROBE
    if isinstance(inputs, Absent) and (inputs.reason == AUTOMATIC or not measurements):
        return _LIVE if inputs.reason == AUTOMATIC else _ORDERED
    rule = _RULES.get(decision.act, _CHOICE)
    accepts = isinstance(inputs, DepthInputs) and inputs.accept_offload
    return rule + _OFFLOAD if accepts else rule


def _replay(
    decision: DecisionView,
    inputs: DepthInputs | PoolInputs | Absent,
    measurements: Sequence[MeasurementView],
) -> ReplayView:
    if isinstance(inputs, Absent):
        return ReplayView(state="not_recorded", sentence=inputs.reason)
    differs = difference(decision, decide(inputs))
    if differs is not None:
        return ReplayView(state="differs", sentence=differs)
    sentence = f"from {_count(len(measurements), 'recorded repetition')}: the same decision"
    return ReplayView(state="same", sentence=sentence)


def _measured(measurements: Sequence[MeasurementView]) -> str:
    if not measurements:
        return "no measurement: an operator or the configuration named this"
    starts = len({m.start_id for m in measurements})
    prompts = len({(m.workload, m.prompt) for m in measurements})
    prints = len({(m.arm.profile, m.fingerprint) for m in measurements})
    models = len({m.arm.profile for m in measurements})
    text = (
        f"{_count(len(measurements), 'repetition')} of {_count(prompts, 'prompt')} on "
        f"{_count(starts, 'engine start')}, "
        f"measured from {measurements[0].at} to {measurements[-1].at}"
    )
    return text if prints == models else f"{text}, under {prints} fingerprints"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _row(row: DepthRowView, measurements: Sequence[MeasurementView]) -> str:
    name = f"{row.arm.profile}@{row.arm.depth}"
    if row.decode_tps is None:
        return f"{name}: not measured ({row.note or row.residency})"
    text = f"{name}: {row.decode_tps:.1f} tok/s, {row.residency}"
    if row.tokens_per_step is not None and row.arm.depth:
        text += f", {row.tokens_per_step:.2f} tokens per step"
    for one in row.acceptance:
        text += f", alpha{one.position} {one.alpha.mid:.3f} ({one.accepted}/{one.offered})"
    text += _energy([one for one in measurements if one.arm == row.arm])
    return f"{text}; {row.note}" if row.note else text


def _energy(measurements: Sequence[MeasurementView]) -> str:
    """Energy per token over the repetitions of an arm that have it; "" where none has."""
    used = [one for one in measurements if one.excluded is None]
    gross_j = _per_token(used, lambda one: one.joules_per_token)
    net_j = _per_token(used, lambda one: one.net_joules_per_token)
    if gross_j is None:
        return ""
    return f", {gross_j:.2f} J/token" + ("" if net_j is None else f" ({net_j:.2f} above idle)")


def _per_token(
    measurements: Sequence[MeasurementView], pick: Callable[[MeasurementView], float | None]
) -> float | None:
    known = [(one.tokens, joules) for one in measurements if (joules := pick(one)) is not None]
    tokens = sum(count for count, _ in known)
    return sum(count * joules for count, joules in known) / tokens if tokens else None
