from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from mtpd.engine.evidence import EvidenceCollector
from mtpd.engine.evidence_load import BufferSums
from mtpd.engine.memory_look import MemoryLook, holders, moved_out, room, taken
from mtpd.engine.residency import Rate, Witnesses, conclude, rejudge
from mtpd.types import Absent, Confidence, Evidence, NotApplicable, ProcessMemory, Value, Verdict
from mtpd.units import MIB
from tests.unit.engine import recorded
from tuner.types import Evicted, Host, Resident, Spilled, Unknown

if TYPE_CHECKING:
    from mtpd.types import Reading

VERDICTS = recorded.expected("verdicts")
ABSENT = Absent("permission denied")
PID = 4711
TOTAL = 16368
OVERHEAD = 54
"""What the driver took beside the printed buffers at every depth, on the real card."""
RESIDENT = Verdict(residency=Resident(), reason="all layers are offloaded")
SUM = BufferSums(device_bytes=14_000 * MIB, pinned_bytes=48 * MIB)
FUSED_OFF = Evidence("resolve_fused_ops: fused Gated Delta Net not supported", "a kernel is off")


def process(
    vram_mib: int, *, gtt_mib: int | None = None, evicted_mib: int | None = None, pid: int = PID
) -> ProcessMemory:
    return ProcessMemory(
        pid=pid,
        name="llama-server",
        vram_bytes=Value(vram_mib * MIB, "kfd"),
        gtt_bytes=ABSENT if gtt_mib is None else Value(gtt_mib * MIB, "fdinfo"),
        evicted_bytes=ABSENT if evicted_mib is None else Value(evicted_mib * MIB, "fdinfo"),
    )


def look(
    used_mib: int | None = 11,
    *,
    gtt_mib: int | None = 14,
    processes: tuple[ProcessMemory, ...] | Absent = ABSENT,
) -> MemoryLook:
    def reading(mib: int | None) -> Reading[int]:
        return ABSENT if mib is None else Value(mib * MIB, "sysfs")

    return MemoryLook(
        at_s=0.0,
        vram_total_bytes=Value(TOTAL * MIB, "sysfs"),
        vram_used_bytes=reading(used_mib),
        gtt_used_bytes=reading(gtt_mib),
        processes=processes,
        engine=frozenset({PID}),
    )


def loaded(**changes: Any) -> Witnesses:
    """A load that is resident by every witness."""
    whole = Witnesses(
        log=RESIDENT,
        printed=SUM,
        before=look(),
        now=look(14_000 + OVERHEAD + 11, gtt_mib=14 + 48),
        depth=2,
        speculates=True,
    )
    return replace(whole, **changes)


def heard(name: str) -> EvidenceCollector:
    collector = EvidenceCollector()
    for line, fact in recorded.everything(name):
        if fact is not None:
            collector.add(line, fact)
    return collector


# The recorded starts --------------------------------------------------------------------


@pytest.mark.parametrize("entry", VERDICTS, ids=[entry["file"] for entry in VERDICTS])
def test_a_card_that_holds_what_the_log_lists_leaves_the_verdict_as_it_is(
    entry: dict[str, Any],
) -> None:
    log = heard(entry["file"])
    used = log.printed.device_bytes // MIB
    verdict = conclude(
        Witnesses(
            log=log.verdict(),
            printed=log.printed,
            fused_off=log.fused_off,
            before=look(0, gtt_mib=0),
            now=look(used + OVERHEAD, gtt_mib=log.printed.pinned_bytes // MIB),
        )
    )
    assert verdict.label == entry["verdict"], verdict
    assert getattr(verdict.residency, "layers", None) == entry.get("layers")
    if verdict.label == "resident":
        assert verdict.confidence is Confidence.MEASURED
        assert verdict.contradiction is None


@pytest.mark.parametrize("entry", VERDICTS, ids=[entry["file"] for entry in VERDICTS])
def test_without_a_card_to_read_the_log_alone_decides(entry: dict[str, Any]) -> None:
    log = heard(entry["file"])
    verdict = conclude(Witnesses(log=log.verdict(), printed=log.printed))
    assert verdict == log.verdict()


def test_a_silent_spill_of_a_real_start_is_seen_in_every_resident_log_that_is_large_enough() -> (
    None
):
    seen = 0
    for entry in VERDICTS:
        log = heard(entry["file"])
        if entry["verdict"] != "resident" or log.printed.device_bytes < 1000 * MIB:
            continue
        used = log.printed.device_bytes // MIB
        verdict = conclude(
            Witnesses(
                log=log.verdict(),
                printed=log.printed,
                before=look(0, gtt_mib=0),
                now=look(used - 900, gtt_mib=900 + log.printed.pinned_bytes // MIB),
            )
        )
        assert isinstance(verdict.residency, Spilled), entry["file"]
        assert verdict.confidence is Confidence.MEASURED
        seen += 1
    assert seen >= 7


@pytest.mark.parametrize(
    ("name", "printed_mib"),
    [("free_b2_n0", 14324), ("free_b2_n1", 15026), ("free_b2_n3", 15624), ("free_b2_n5", 16225)],
)
def test_the_last_compute_buffer_of_each_context_counts_once(name: str, printed_mib: int) -> None:
    # VRAM measured in real_gpu_27b.md less the constant overhead of 54 to 55 MiB.
    assert heard(f"gpu_logs/{name}.log").printed.device_bytes // MIB == printed_mib


# Measured memory ------------------------------------------------------------------------


def test_a_load_that_every_witness_calls_resident_is_measured_to_be() -> None:
    verdict = conclude(loaded())
    assert verdict.residency == Resident()
    assert (verdict.confidence, verdict.contradiction) == (Confidence.MEASURED, None)
    assert any("14065 MiB now" in e.line for e in verdict.evidence)


def test_memory_that_the_log_lists_and_the_card_lacks_is_spilled() -> None:
    verdict = conclude(loaded(now=look(11_065, gtt_mib=3_062)))
    assert verdict.residency == Spilled(3000 * MIB)
    assert verdict.confidence is Confidence.MEASURED
    assert verdict.contradiction is not None
    assert "resident" in verdict.contradiction
    assert any("11065 MiB now" in e.line for e in verdict.evidence)


def test_where_mapped_host_memory_is_not_counted_the_lack_alone_is_a_suspected_spill() -> None:
    verdict = conclude(loaded(before=look(gtt_mib=None), now=look(11_065, gtt_mib=None)))
    assert verdict.residency == Spilled(14_000 * MIB - 11_054 * MIB)
    assert verdict.confidence is Confidence.SUSPECTED


def test_mapped_host_memory_beyond_the_pinned_buffers_is_the_worse_witness_and_counts() -> None:
    verdict = conclude(loaded(now=look(14_065, gtt_mib=1_062)))
    assert verdict.residency == Spilled(1000 * MIB)
    assert verdict.confidence is Confidence.SUSPECTED


@pytest.mark.parametrize(("lack", "spilled"), [(257, True), (255, False)])
def test_more_than_256_mib_below_the_sum_are_a_spill(lack: int, *, spilled: bool) -> None:
    blind = look(gtt_mib=None)
    verdict = conclude(loaded(before=blind, now=look(14_011 - lack, gtt_mib=None)))
    assert isinstance(verdict.residency, Spilled) is spilled


@pytest.mark.parametrize(("more", "spilled"), [(0, False), (1, True)])
def test_the_thresholds_themselves_are_no_spill_and_a_byte_more_is(
    more: int, *, spilled: bool
) -> None:
    blind = look(gtt_mib=None)
    used = Value((14_011 - 256) * MIB - more, "sysfs")
    lacking = replace(look(gtt_mib=None), vram_used_bytes=used)
    found = conclude(loaded(before=blind, now=lacking))
    assert isinstance(found.residency, Spilled) is spilled
    mapped = replace(look(14_065), gtt_used_bytes=Value((62 + 256) * MIB + more, "sysfs"))
    assert isinstance(conclude(loaded(now=mapped)).residency, Spilled) is spilled
    one = replace(process(14_054), evicted_bytes=Value(64 * MIB + more, "fdinfo"))
    now = look(14_065, processes=(one,))
    ready = look(14_065, processes=(process(14_054, evicted_mib=0),))
    assert isinstance(rejudge(RESIDENT, ready=ready, now=now).residency, Spilled) is spilled
    fallen = Value((14_065 - 256) * MIB - more, "sysfs")
    serving = replace(look(gtt_mib=14 + 256), vram_used_bytes=fallen)
    later_on = rejudge(RESIDENT, ready=look(14_065), now=serving)
    assert isinstance(later_on.residency, Spilled) is spilled


@pytest.mark.parametrize("lack", [-OVERHEAD, 0, 60])
def test_a_small_difference_is_no_spill(lack: int) -> None:
    assert conclude(loaded(now=look(14_011 - lack, gtt_mib=62))).residency == Resident()


def test_buffers_that_the_kernel_moved_out_are_a_spill_whatever_else_is_counted() -> None:
    now = look(14_065, gtt_mib=62, processes=(process(14_054, evicted_mib=700),))
    verdict = conclude(loaded(now=now))
    assert verdict.residency == Spilled(700 * MIB)
    assert verdict.confidence is Confidence.MEASURED


def test_moved_out_buffers_count_where_the_log_lists_nothing_too() -> None:
    unknown = Verdict(residency=Unknown("no lines"), reason="no lines")
    now = look(None, processes=(process(10, evicted_mib=700),))
    verdict = conclude(loaded(log=unknown, printed=None, now=now))
    assert verdict.residency == Spilled(700 * MIB)
    assert verdict.contradiction is None


def test_another_program_that_takes_memory_meanwhile_cannot_hide_a_spill() -> None:
    now = look(14_065, gtt_mib=62, processes=(process(11_000),))
    assert conclude(loaded(now=now)).residency == Spilled(3000 * MIB)


def test_another_program_that_gives_memory_back_meanwhile_makes_no_spill() -> None:
    now = look(12_000, gtt_mib=62, processes=(process(14_054, gtt_mib=48),))
    assert conclude(loaded(now=now)).residency == Resident()


def test_memory_that_a_process_allocated_and_the_card_lacks_is_where_the_host_has_it() -> None:
    """KFD goes on counting buffers that were moved to mapped host memory."""
    now = look(12_000, gtt_mib=2_117, processes=(process(14_054),))
    verdict = conclude(loaded(now=now))
    assert verdict.residency == Spilled((2_117 - 14 - 48) * MIB)
    assert verdict.confidence is Confidence.MEASURED  # both say so, not the host's alone


def test_room_is_what_was_free_less_what_other_programs_took_since() -> None:
    before = look(processes=())
    total, used = before.vram_total_bytes, before.vram_used_bytes
    assert isinstance(total, Value)
    assert isinstance(used, Value)
    free = total.value - used.value
    assert room(before, None) == room(before, look(14_011)) == free
    other = process(300, pid=99)
    now = look(14_365, processes=(process(14_054), other))
    assert room(before, now) == free - 300 * MIB
    assert room(replace(before, processes=(other,)), now) == free, "it was there before"
    hidden = look(14_365, processes=(process(14_054, pid=1), other))
    assert room(before, hidden) == free, "one of them may be the engine by another pid"
    assert room(None, now) is None
    assert room(look(None), now) is None


def test_a_source_that_cannot_see_into_a_process_is_passed_over() -> None:
    now = look(14_065, gtt_mib=62, processes=(process(2),))
    assert conclude(loaded(now=now)).residency == Resident()


def test_what_cannot_be_read_is_said_and_bears_no_witness() -> None:
    verdict = conclude(loaded(now=look(None, gtt_mib=None)))
    assert verdict.residency == Resident()
    assert verdict.confidence is Confidence.REPORTED
    assert any("permission denied" in e.line for e in verdict.evidence)


def test_a_machine_without_a_card_is_host_by_design_whatever_the_counters_say() -> None:
    host = Verdict(residency=Host(), reason="no device")
    nothing = NotApplicable("no GPU")
    blank = replace(look(), vram_used_bytes=nothing, gtt_used_bytes=nothing)
    assert conclude(loaded(log=host, before=blank, now=blank)) == host


def test_an_eviction_stays_one_and_a_spill_beside_it_is_said() -> None:
    evicted = Verdict(residency=Evicted(4), reason="4 layers run on the CPU")
    verdict = conclude(loaded(log=evicted, now=look(13_000, gtt_mib=1_062)))
    assert verdict.residency == Evicted(4)
    assert verdict.contradiction is not None
    assert "host memory" in verdict.contradiction


# Signs ------------------------------------------------------------------------------------


def test_the_signature_of_study_002_is_an_eviction() -> None:
    """Fused Gated DeltaNet disabled, VRAM down, decode halved; the log says 66/66."""
    verdict = conclude(
        loaded(fused_off=FUSED_OFF, now=look(13_911, gtt_mib=62), rate=Rate(24.0, 50.3))
    )
    assert verdict.residency == Evicted(None)
    assert verdict.confidence is Confidence.SUSPECTED
    assert verdict.evidence[0].line == FUSED_OFF.line
    assert any("24.0 tok/s" in e.line for e in verdict.evidence)


@pytest.mark.parametrize(
    "signs",
    [
        {"fused_off": FUSED_OFF, "rate": Rate(24.0, 50.3)},
        {"fused_off": FUSED_OFF, "now": look(13_911, gtt_mib=62)},
        {"rate": Rate(24.0, 50.3), "now": look(13_911, gtt_mib=62)},
    ],
)
def test_any_two_of_its_three_signs_are_an_eviction(signs: dict[str, Any]) -> None:
    assert conclude(loaded(**signs)).residency == Evicted(None)


@pytest.mark.parametrize(
    "sign",
    [
        {"fused_off": FUSED_OFF, "now": None},
        {"rate": Rate(24.0, 50.3), "now": None},
        {"now": look(13_911, gtt_mib=62)},
    ],
)
def test_one_sign_alone_is_said_and_changes_nothing(sign: dict[str, Any]) -> None:
    verdict = conclude(loaded(**sign))
    assert verdict.residency == Resident()
    assert verdict.confidence is Confidence.REPORTED
    assert verdict.contradiction is not None
    assert "no proof" in verdict.contradiction


def test_three_quarters_of_its_own_speed_are_no_sign() -> None:
    verdict = conclude(loaded(rate=Rate(38.0, 50.3), now=None))
    assert verdict == RESIDENT


def test_slots_that_do_not_draft_are_not_the_arm_that_was_asked_for() -> None:
    verdict = conclude(loaded(speculates=False, now=None))
    assert isinstance(verdict.residency, Unknown)
    assert not verdict.passes
    assert conclude(loaded(speculates=False, depth=0, now=None)) == RESIDENT
    assert conclude(loaded(speculates=None, now=None)) == RESIDENT


def test_what_the_log_says_comes_before_an_equally_bad_word_of_another_witness() -> None:
    unknown = Verdict(residency=Unknown("no lines"), reason="no lines")
    verdict = conclude(loaded(log=unknown, speculates=False, now=None))
    assert verdict.reason == "no lines"
    assert any("speculative" in e.line for e in verdict.evidence)


# While it serves --------------------------------------------------------------------------

READY = look(14_065, gtt_mib=62, processes=(process(14_054, gtt_mib=48, evicted_mib=0),))


def later(vram_mib: int, *, evicted_mib: int = 0, used: int = 14_065, gtt: int = 62) -> MemoryLook:
    own = process(vram_mib, gtt_mib=48, evicted_mib=evicted_mib)
    return look(used, gtt_mib=gtt, processes=(own,))


def test_a_serving_engine_that_keeps_its_memory_keeps_its_verdict() -> None:
    assert rejudge(RESIDENT, ready=READY, now=READY) is RESIDENT
    assert rejudge(RESIDENT, ready=READY, now=later(13_900)) is RESIDENT


@pytest.mark.parametrize("now", [later(13_000), later(14_054, evicted_mib=1_054)])
def test_a_resident_engine_that_loses_its_memory_has_spilled(now: MemoryLook) -> None:
    verdict = rejudge(RESIDENT, ready=READY, now=now)
    assert verdict.residency == Spilled(1054 * MIB)
    assert verdict.contradiction is not None
    assert "resident" in verdict.contradiction


def test_a_card_that_others_leave_is_no_spill_and_one_that_moves_memory_to_the_host_is() -> None:
    before = look(14_065)
    assert rejudge(RESIDENT, ready=before, now=look(12_000)) is RESIDENT
    spilled = rejudge(RESIDENT, ready=before, now=look(12_000, gtt_mib=2_079))
    assert spilled.residency == Spilled(2065 * MIB)
    assert rejudge(RESIDENT, ready=before, now=look(14_065, gtt_mib=2_079)) is RESIDENT


def test_counters_that_fail_while_it_serves_say_nothing() -> None:
    assert rejudge(RESIDENT, ready=READY, now=look(None, gtt_mib=None)) is RESIDENT
    assert rejudge(RESIDENT, ready=look(None, gtt_mib=None), now=later(100)) is RESIDENT


@pytest.mark.parametrize("residency", [Evicted(1), Spilled(5), Host()])
def test_a_verdict_that_is_worse_already_or_by_design_is_left(residency: Any) -> None:
    verdict = Verdict(residency=residency, reason="so")
    assert rejudge(verdict, ready=READY, now=later(10)) is verdict


# Figures ----------------------------------------------------------------------------------


def test_processes_that_are_not_the_engine_are_not_counted() -> None:
    now = look(14_065, processes=(process(14_054), process(9_000, pid=1)))
    figure = taken(look(), now)
    assert not isinstance(figure, str)
    assert figure.count == 14_054 * MIB
    assert moved_out(now) is None


def test_a_process_of_the_engine_that_is_not_counted_makes_the_sum_unknown() -> None:
    blind = replace(process(5), vram_bytes=ABSENT)
    now = replace(look(None, processes=(process(14_054), replace(blind, pid=2))))
    now = replace(now, engine=frozenset({PID, 2}))
    assert taken(look(None), now) == "permission denied"


def test_holders_are_named_largest_first_and_what_nobody_owns_is_said() -> None:
    small, large = process(300, pid=2), process(9_000, pid=3)
    tiny = replace(process(1, pid=4), vram_bytes=Value(4096, "kfd"))
    clients = (small, large, tiny, replace(process(7, pid=5), vram_bytes=ABSENT))
    assert holders(look(10_000, processes=clients)) == (
        "3 llama-server 9000 MiB; 2 llama-server 300 MiB; 700 MiB that no visible process owns"
    )
    assert holders(look(None, processes=(small,))) == "2 llama-server 300 MiB"
    assert holders(look(None, processes=())) == "no visible process holds any"
