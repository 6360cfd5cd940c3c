"""Any witnesses at all: never an exception, never a better verdict, unknown is never zero."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mtpd.engine.evidence_load import BufferSums
from mtpd.engine.memory_look import MemoryLook
from mtpd.engine.residency import Rate, Witnesses, conclude, rejudge
from mtpd.types import Absent, Evidence, NotApplicable, ProcessMemory, Value, Verdict
from tuner.types import Evicted, Host, Resident, Spilled, Unknown

BYTES = st.integers(0, 2**35)
READINGS = st.one_of(
    st.builds(Value, BYTES, st.just("sysfs")),
    st.builds(Absent, st.just("cannot be read")),
    st.builds(NotApplicable, st.just("no GPU")),
)
PROCESSES = st.one_of(
    st.builds(Absent, st.just("cannot be seen")),
    st.lists(
        st.builds(
            ProcessMemory,
            pid=st.integers(1, 3),
            name=st.just("llama-server"),
            vram_bytes=READINGS,
            gtt_bytes=READINGS,
            evicted_bytes=READINGS,
        ),
        max_size=3,
    ).map(tuple),
)
LOOKS = st.builds(
    MemoryLook,
    at_s=st.just(0.0),
    vram_total_bytes=READINGS,
    vram_used_bytes=READINGS,
    gtt_used_bytes=READINGS,
    processes=PROCESSES,
    engine=st.frozensets(st.integers(1, 3)),
)
VERDICTS = st.sampled_from(
    [
        Verdict(residency=Resident(), reason="resident"),
        Verdict(residency=Evicted(2), reason="evicted"),
        Verdict(residency=Host(), reason="host"),
        Verdict(residency=Unknown("unknown"), reason="unknown"),
    ]
)
RATES = st.builds(Rate, st.floats(0, 500), st.floats(0, 500))
WITNESSES = st.builds(
    Witnesses,
    log=VERDICTS,
    printed=st.none() | st.builds(BufferSums, BYTES, BYTES),
    fused_off=st.none() | st.just(Evidence("disabled", "off")),
    before=st.none() | LOOKS,
    now=st.none() | LOOKS,
    depth=st.integers(0, 5),
    speculates=st.none() | st.booleans(),
    rate=st.none() | RATES,
)
RANK = {"resident": 0, "host": 0, "unknown": 1, "spilled": 2, "evicted": 3}


@given(witnesses=WITNESSES)
def test_no_witness_makes_a_verdict_better_and_a_worse_one_says_what_speaks_against_it(
    witnesses: Witnesses,
) -> None:
    verdict = conclude(witnesses)
    assert RANK[verdict.label] >= RANK[witnesses.log.label]
    assert verdict.reason
    assert len(verdict.evidence) <= 8
    if witnesses.log.label not in {verdict.label, "unknown"}:
        assert verdict.contradiction
    if isinstance(verdict.residency, Spilled):
        assert verdict.residency.spilled_bytes


@given(witnesses=WITNESSES, look=LOOKS)
def test_counters_that_cannot_be_read_leave_what_the_other_witnesses_say(
    witnesses: Witnesses, look: MemoryLook
) -> None:
    blank = replace(
        look,
        vram_used_bytes=Absent("in reset"),
        gtt_used_bytes=Absent("in reset"),
        processes=Absent("in reset"),
    )
    blind = conclude(replace(witnesses, now=blank))
    assert blind.residency == conclude(replace(witnesses, now=None)).residency


@given(verdict=VERDICTS, ready=LOOKS, now=LOOKS)
def test_a_serving_engine_is_only_ever_judged_worse(
    verdict: Verdict, ready: MemoryLook, now: MemoryLook
) -> None:
    again = rejudge(verdict, ready=ready, now=now)
    assert RANK[again.label] >= RANK[verdict.label]
    assert rejudge(verdict, ready=ready, now=ready) is verdict
    if again is not verdict:
        assert isinstance(again.residency, Spilled)
        assert again.residency.spilled_bytes
