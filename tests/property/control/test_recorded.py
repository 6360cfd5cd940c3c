"""Whatever a decision rested on comes back from the journal; whatever else is refused."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mtpd.control.deciding import DepthInputs
from mtpd.control.explain import explanation
from mtpd.control.recorded import decode_inputs, encode_inputs
from mtpd.types import Absent
from tests.fakes.values import decision_view
from tests.unit.control.made import arm
from tests.unit.control.test_recorded import DEPTH, POOL
from tuner.cost import RowCost
from tuner.plan import History, WorkloadPlan
from tuner.types import (
    Arm,
    Budget,
    Evicted,
    Host,
    Residency,
    Resident,
    ShortStep,
    Spilled,
    Start,
    Unknown,
)

POSITIVE = st.floats(min_value=1e-9, max_value=1e9)
SHARE = st.floats(min_value=0.0, max_value=100.0)
COUNT = st.integers(0, 2**53)
ARMS = st.builds(arm, st.text(min_size=1), st.integers(0, 5), st.just(0.0))


def short_step(which: Arm, share: float, step_s: float, context: int, start: str) -> ShortStep:
    return ShortStep(
        arm=which,
        start_id=start,
        fingerprint="f",
        rows=round(share * which.depth),
        step_s=step_s,
        context_tokens=context,
    )


RESIDENCIES: st.SearchStrategy[Residency] = st.one_of(
    st.just(Resident()),
    st.just(Host()),
    st.builds(Evicted, st.none() | COUNT),
    st.builds(Spilled, st.none() | COUNT),
    st.builds(Unknown, st.text()),
)
STARTS = st.builds(
    Start, arm=ARMS, start_id=st.text(), residency=RESIDENCIES, failure=st.none() | st.text()
)
STEPS = st.builds(short_step, ARMS, st.floats(0, 1), POSITIVE, COUNT, st.text(max_size=2))
HISTORIES = st.builds(
    History,
    starts=st.lists(STARTS, max_size=4).map(tuple),
    short_steps=st.lists(STEPS, max_size=6).map(tuple),
    spent_s=POSITIVE,
    spent_j=st.none() | POSITIVE,
)
LIMIT = st.none() | POSITIVE
INPUTS = st.builds(
    DepthInputs,
    subject=st.text(),
    method=st.sampled_from(["sweep", "model-based", "probe"]),
    applied=st.booleans(),
    notes=st.lists(st.text(), max_size=2).map(tuple),
    history=HISTORIES,
    incumbent=st.none() | ARMS,
    memory_bytes=st.dictionaries(ARMS, COUNT, max_size=3),
    deepest=st.none() | COUNT,
    row_cost=st.none() | st.builds(RowCost, c=SHARE, sd=SHARE, source=st.text()),
    arms=st.lists(ARMS, max_size=4).map(tuple),
    workloads=st.lists(st.builds(WorkloadPlan, name=st.text(), prompts=COUNT), max_size=2).map(
        tuple
    ),
    repetitions=COUNT,
    short_steps=COUNT,
    budget=st.builds(
        Budget,
        max_restarts=COUNT,
        max_cells=st.none() | COUNT,
        max_seconds=LIMIT,
        max_joules=LIMIT,
    ),
    accept_offload=st.booleans(),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(INPUTS)
def test_inputs_come_back_as_they_were(inputs: DepthInputs) -> None:
    text = json.dumps(encode_inputs(inputs), allow_nan=False)

    assert decode_inputs(json.loads(text), ()) == inputs


@given(st.sampled_from([DEPTH, POOL]), st.data())
def test_no_damage_to_the_column_raises(inputs: Any, data: st.DataObject) -> None:
    found: Any = json.loads(json.dumps(encode_inputs(inputs)))
    _damage(found, data)

    told = inputs.history if isinstance(inputs, DepthInputs) else inputs.members[0].history
    decoded = decode_inputs(found, told.observations)

    assert isinstance(decoded, Absent | type(inputs))
    shown = explanation(decision_view(), (), told.observations, found)
    assert (shown.replay.state == "not_recorded") == isinstance(decoded, Absent)


def _damage(found: Any, data: st.DataObject) -> None:
    """Put something else at one place, however deep."""
    here = found
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if isinstance(here[key], dict | list) and here[key] and data.draw(st.booleans()):
            here = here[key]
            continue
        here[key] = data.draw(JSON)
        return
