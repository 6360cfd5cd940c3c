from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mtpd.engine.evidence import EvidenceCollector, judge
from mtpd.engine.logs import fact
from tests.unit.engine import recorded
from tuner.types import Evicted, Resident

if TYPE_CHECKING:
    from mtpd.types import Verdict

VERDICTS = recorded.expected("verdicts")


def verdict(lines: list[str], *, device_expected: bool = False) -> Verdict:
    return judge(recorded.pairs(lines), device_expected=device_expected)


# A complete start on one device, as b11434 prints it, without prefixes.
LISTED = "cmn  common_param:   - Vulkan0 : Some card (16368 MiB, 16000 MiB free)"
LEVEL = "cmn  common_param: common_params_print_info: verbosity = 4 (adjust with …)"
BEGIN = "srv    load_model: loading model '/srv/models/m.gguf'"
USING = (
    "llama_prepare_model_devices: using device Vulkan0 (Some card) (0000:03:00.0) - 16000 MiB free"
)
WEIGHTS = "load_tensors: loading model tensors, this can take a while... (load_mode = mmap)"
OFFLOADED = "load_tensors: offloaded 10/10 layers to GPU"
EMBEDDING = "load_tensors:   CPU_Mapped model buffer size =     0.50 MiB"
MODEL = "load_tensors:      Vulkan0 model buffer size =     6.31 MiB"
KV = "llama_kv_cache:    Vulkan0 KV buffer size =     2.00 MiB"
RS = "llama_memory_recurrent:    Vulkan0 RS buffer size =     0.67 MiB"
MTP = "common_speculative_init_result: creating MTP draft context against the target model 'm'"
LOADED = "srv  llama_server: model loaded"
START = [LEVEL, LISTED, BEGIN, USING, WEIGHTS, OFFLOADED, EMBEDDING, MODEL, KV, RS, MTP, KV, LOADED]
CPU_KV = "llama_kv_cache:        CPU KV buffer size =     1.00 MiB"
CPU_RS = "llama_memory_recurrent:        CPU RS buffer size =     0.11 MiB"
TRIAL = [
    WEIGHTS,
    "load_tensors: offloaded 3/10 layers to GPU",
    "load_tensors:          CPU model buffer size =     0.00 MiB",
    "load_tensors:      Vulkan0 model buffer size =     0.00 MiB",
    "llama_kv_cache:        CPU KV buffer size =     0.00 MiB",
    "llama_memory_recurrent:        CPU RS buffer size =     0.67 MiB",
]


def without(*unwanted: str) -> list[str]:
    return [line for line in START if line not in unwanted]


@pytest.mark.parametrize("entry", VERDICTS, ids=[entry["file"] for entry in VERDICTS])
def test_a_recorded_start_is_judged_as_a_person_judged_it(entry: dict[str, Any]) -> None:
    lines = recorded.lines(entry["file"])
    found = verdict(lines)
    assert found.label == entry["verdict"], found
    assert getattr(found.residency, "layers", None) == entry.get("layers")
    if "line" in entry:
        assert entry["line"] in found.evidence[0].line
    else:
        assert found.evidence == ()


def test_forty_recorded_starts_and_all_of_the_real_card_were_judged_by_hand() -> None:
    files = {entry["file"] for entry in VERDICTS}
    assert sum(name.startswith("logs/") for name in files) >= 40
    on_the_card = {name for name in recorded.LOGS if name.startswith("gpu_logs/")}
    assert len(on_the_card) == 12
    assert on_the_card <= files


def test_every_quoted_line_is_in_the_log_word_for_word() -> None:
    for name in recorded.LOGS:
        lines = recorded.lines(name)
        for evidence in verdict(lines).evidence:
            assert evidence.line in lines, name


def test_no_recorded_start_is_resident_once_its_buffer_lines_are_gone() -> None:
    resident = 0
    for name in recorded.LOGS:
        lines = recorded.lines(name)
        resident += verdict(lines).label == "resident"
        stripped = [line for line in lines if "buffer size" not in line]
        assert verdict(stripped).label not in {"resident", "host"}, name
    assert resident >= 18


def test_no_recorded_start_is_resident_once_its_cache_lines_are_gone() -> None:
    for name in recorded.LOGS:
        kept = [x for x in recorded.lines(name) if " KV buffer" not in x and " RS buffer" not in x]
        assert verdict(kept).label != "resident", name


def test_no_recorded_start_is_resident_before_its_load_is_complete() -> None:
    for name in recorded.LOGS:
        collector, complete = EvidenceCollector(), False
        for line, found in recorded.everything(name):
            if found is None:
                continue
            collector.add(line, found)
            complete = complete or "n_slots =" in line or "model loaded" in line
            if not complete:
                assert collector.verdict().label in {"unknown", "evicted"}, (name, line)


def test_a_complete_start_on_a_device_is_resident() -> None:
    found = verdict(START)
    assert found.residency == Resident()
    assert found.passes
    assert [e.line for e in found.evidence][:2] == [MODEL, KV]


@pytest.mark.parametrize("line", [OFFLOADED, MODEL, LOADED])
def test_a_start_that_lacks_one_proof_is_unknown(line: str) -> None:
    found = verdict(without(line))
    assert found.label == "unknown"
    assert not found.passes
    assert found.reason


def test_offloaded_n_of_n_alone_proves_nothing() -> None:
    assert verdict([LEVEL, LISTED, BEGIN, USING, WEIGHTS, OFFLOADED, LOADED]).label == "unknown"


@pytest.mark.parametrize("line", [CPU_KV, CPU_RS])
def test_cache_in_host_memory_beside_a_device_means_evicted(line: str) -> None:
    found = verdict([*START[:-1], line, LOADED])
    assert found.residency == Evicted(None)
    assert found.evidence[0].line == line


def test_a_pinned_host_buffer_is_host_memory_too() -> None:
    line = "llama_kv_cache: Vulkan_Host KV buffer size =     1.00 MiB"
    assert verdict([*START[:-1], line, LOADED]).label == "evicted"


def test_an_empty_cache_buffer_in_host_memory_is_no_eviction() -> None:
    line = "llama_kv_cache:        CPU KV buffer size =     0.00 MiB"
    assert verdict([*START[:-1], line, LOADED]).label == "resident"


def test_missing_layers_are_counted_with_the_nextn_block() -> None:
    lines = [x.replace("10/10", "57/66") for x in START]
    found = verdict(lines)
    assert found.residency == Evicted(9)
    assert found.reason == "9 layers of the model run on the CPU"


def test_a_draft_model_in_host_memory_counts_as_evicted() -> None:
    draft = [WEIGHTS, "load_tensors: offloaded 2/5 layers to GPU", EMBEDDING, MODEL, KV]
    assert verdict([*START[:-1], *draft, LOADED]).residency == Evicted(3)


def test_a_draft_model_without_proof_leaves_the_whole_start_unknown() -> None:
    draft = [WEIGHTS, "load_tensors: offloaded 5/5 layers to GPU", EMBEDDING, MODEL]
    assert verdict([*START[:-1], *draft, LOADED]).label == "unknown"


def test_trial_loads_of_fit_are_not_taken_for_the_load() -> None:
    start = START.index(WEIGHTS)
    lines = [*START[:start], *TRIAL, *TRIAL, *START[start:]]
    assert verdict(lines).residency == Resident()
    assert verdict([*START[:start], *TRIAL]).label == "unknown"
    assert verdict([*START[:start], *TRIAL, LOADED]).label == "unknown"


def test_a_layer_on_the_cpu_whose_kernel_is_not_means_evicted() -> None:
    line = (
        "0.1 W resolve_fused_ops: layer 0 is assigned to device CPU but fused Gated Delta Net"
        " (chunked) is assigned to device Vulkan0 (usually due to missing support)"
    )
    assert verdict([BEGIN, line, LOADED]).residency == Evicted(None)


def test_a_kernel_on_the_cpu_whose_layer_is_not_is_no_eviction() -> None:
    line = (
        "sched_reserve: layer 0 is assigned to device Vulkan0 but Flash Attention is assigned to"
        " device CPU (usually due to missing support)"
    )
    assert fact(line) is not None
    assert verdict([*START[:-1], line, LOADED]).label == "resident"


def test_layers_that_overflow_are_evicted_although_they_count_as_offloaded() -> None:
    line = (
        "common_params_fit_impl:   - Vulkan0 (X): 10 layers ( 3 overflowing),  15209 MiB used,"
        "   1158 MiB free"
    )
    assert verdict([*START[:3], line, *START[3:]]).residency == Evicted(3)


def test_layers_spread_over_two_devices_are_not_evicted() -> None:
    shares = [
        f"common_params_fit_impl:   - Vulkan{i} (X): 33 layers,  7000 MiB used,   1158 MiB free"
        for i in range(2)
    ]
    trial = "common_params_fit_impl: id=1, n_layer=66, n_part= 0, overflow_type=4, mem= 15439 MiB"
    assert verdict([BEGIN, trial, *shares]).label == "unknown"
    assert verdict([BEGIN, trial, shares[0]]).residency == Evicted(33)


def test_an_engine_without_a_device_is_on_the_host_by_design() -> None:
    lines = [LEVEL, BEGIN, WEIGHTS, OFFLOADED, EMBEDDING, CPU_KV, CPU_RS, LOADED]
    assert verdict(lines).label == "host"
    assert verdict(lines).passes


def test_an_engine_that_was_to_use_a_device_and_finds_none_is_evicted() -> None:
    lines = [LEVEL, BEGIN, WEIGHTS, OFFLOADED, EMBEDDING, CPU_KV, CPU_RS, LOADED]
    found = verdict(lines, device_expected=True)
    assert found.residency == Evicted(None)
    assert not found.passes


def test_a_device_that_was_left_out_is_named() -> None:
    lines = [LEVEL, LISTED, BEGIN, WEIGHTS, OFFLOADED, EMBEDDING, CPU_KV, LOADED]
    found = verdict(lines)
    assert found.label == "host"
    assert "Vulkan0" in found.reason


def test_a_used_device_with_nothing_on_it_is_not_by_design() -> None:
    lines = [LEVEL, BEGIN, USING, WEIGHTS, "load_tensors: offloaded 0/10 layers to GPU"]
    assert verdict([*lines, EMBEDDING, CPU_KV, LOADED]).residency == Evicted(10)


def test_a_second_load_decides_anew() -> None:
    evicted = [x.replace("10/10", "9/10") for x in START]
    assert verdict([*START, *evicted]).residency == Evicted(1)
    assert verdict([*evicted, *START]).residency == Resident()
    assert verdict([*START, BEGIN]).label == "unknown"


def test_what_a_request_makes_the_engine_print_changes_nothing() -> None:
    lines = [*START, CPU_KV, "load_tensors: offloaded 1/10 layers to GPU", "ErrorOutOfDeviceMemory"]
    assert verdict(lines).residency == Resident()


def test_an_engine_that_failed_while_loading_is_unknown_with_the_first_failure() -> None:
    failed = "0.1 E srv    load_model: failed to load model, '/srv/models/m.gguf'"
    out = "ggml_vulkan: Device memory allocation of size 6067648 failed."
    found = verdict([*START[:-1], out, failed])
    assert found.label == "unknown"
    assert found.evidence[0].line == out


def test_a_failure_that_the_load_survives_is_forgotten() -> None:
    out = "ggml_vulkan: Device memory allocation of size 6067648 failed."
    assert verdict([*START[:-1], out, LOADED]).label == "resident"


def test_a_build_with_other_words_is_unknown_and_says_so() -> None:
    lines = [x.replace(" MiB", " mebibytes") if "buffer" in x else x for x in START]
    found = verdict(lines)
    assert found.label == "unknown"
    assert "cannot read" in found.reason


def test_evidence_is_found_inside_a_flood() -> None:
    noise = "0.00.088.073 D slot process_toke: id  0 | task 1 | n_decoded = 1"
    flooded = [x for line in START for x in [*[noise] * 8000, line]]
    assert len(flooded) > 100_000
    assert verdict(flooded).residency == Resident()


def test_a_collector_does_not_grow_with_the_log() -> None:
    collector = EvidenceCollector()
    for line, found in recorded.pairs([*START[:-1], *[CPU_KV] * 10_000, *TRIAL * 500]):
        collector.add(line, found)
    assert len(collector._loads) <= 2
    assert sum(len(load._buffers) for load in collector._loads) < 300
    assert len(collector.verdict().evidence) <= 6


def test_cache_in_host_memory_without_any_weights_is_unknown() -> None:
    found = verdict([BEGIN, OFFLOADED, CPU_KV, LOADED])
    assert found.label == "unknown"
    assert "cache is in host memory" in found.reason


def test_an_empty_log_is_unknown() -> None:
    assert judge([]).label == "unknown"


def test_a_gpu_runtime_that_failed_is_quoted_first_where_a_device_was_expected() -> None:
    failed = "ggml_cuda_init: failed to initialize ROCm: no ROCm-capable device is detected"
    lines = [failed, *(line.replace("Vulkan0", "CPU") for line in without(USING, LISTED))]
    found = verdict(lines, device_expected=True)
    assert found.residency == Evicted(None)
    assert found.evidence[0].line == failed
    assert verdict(lines).label == "host"


def test_work_buffers_count_once_per_context_and_trial_loads_not_at_all() -> None:
    main = "llama_context: n_rs_seq              = 2"
    work = "sched_reserve:    Vulkan0 compute buffer size =   100.00 MiB"
    more = "sched_reserve:    Vulkan0 compute buffer size =    40.00 MiB"
    pinned = "sched_reserve: Vulkan_Host compute buffer size =     3.00 MiB"
    collector = EvidenceCollector()
    lines = [*TRIAL, *START[:8], main, KV, RS, work, pinned, MTP, KV, more, more, LOADED]
    for line in lines:
        if (found := fact(line)) is not None:
            collector.add(line, found)
    mib = 6.31 + 2.00 + 0.67 + 100.00 + 2.00 + 40.00
    assert collector.printed.device_bytes == round(mib * 2**20)
    assert collector.printed.pinned_bytes == 3 * 2**20
