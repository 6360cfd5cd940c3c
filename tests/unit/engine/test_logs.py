from __future__ import annotations

import re
import time
from collections import Counter

import pytest

from mtpd.engine import facts as f
from mtpd.engine.logs import MAX_LINE, fact, plain
from tests.unit.engine import recorded
from tests.unit.engine.log_lines import ERAS

PREFIX = "0.00.088.073 I "


@pytest.mark.parametrize(("line", "expected"), ERAS, ids=[line[:60] for line, _ in ERAS])
def test_a_line_of_each_kind_and_era_reads_as_its_fact(line: str, expected: f.Fact | None) -> None:
    assert fact(line) == expected


def test_every_kind_of_fact_is_read_from_a_recorded_log_or_a_quoted_line() -> None:
    seen = {type(expected) for _, expected in ERAS}
    for name in recorded.LOGS:
        seen |= {type(found) for _, found in recorded.everything(name)}
    kinds = {getattr(f, name) for name in f.__all__} - {f.Fact, f.Phase, f.is_host_memory}
    assert kinds - seen == {f.LogDialectUnknown}


OFFLOADED = "load_tensors: offloaded 9/10 layers to GPU"


@pytest.mark.parametrize(
    "line",
    [
        OFFLOADED,
        f"I {OFFLOADED}",
        f"{PREFIX}{OFFLOADED}",
        f"0.00.088.073 D {OFFLOADED}",
        f"[40655] {PREFIX}{OFFLOADED}",
        f"{PREFIX}{OFFLOADED}\r\n",
        f"\x1b[34m0.00.088.073\x1b[0m \x1b[32mI \x1b[0m{OFFLOADED}\x1b[0m",
        '{"type":"log","time":33194,"level":"info","msg":"' + OFFLOADED + '\\n"}',
    ],
)
def test_prefix_colour_router_and_json_make_no_difference(line: str) -> None:
    assert fact(line) == f.LayersOffloaded(count=9, total=10)


def test_the_message_of_a_line_is_what_follows_its_prefix() -> None:
    assert plain("[7] 0.00.088.073 W srv  x: y  ") == "srv  x: y"
    assert plain("17.0 I think") == "17.0 I think"
    assert plain("\x1b[32mW \x1b[0msrv  x: y") == "srv  x: y"
    assert plain("") == ""


@pytest.mark.parametrize(
    "line",
    [
        # a prompt quotes whatever its writer likes
        f"{PREFIX}slot launch_slot_: id  0 | task 1 | prompt: {OFFLOADED}",
        f"{PREFIX}srv  log_server_r: request: {OFFLOADED}",
        f"{PREFIX}slot launch_slot_: id 0 | task 1 | srv  llama_server: model loaded",
        f"{PREFIX}srv  log_server_r: srv  llama_server: model loaded",
        f"{PREFIX}srv  log_server_r: load_tensors: Vulkan0 model buffer size = 6.31 MiB",
    ],
)
def test_text_quoted_inside_another_line_is_no_evidence(line: str) -> None:
    found = fact(line)
    assert found is None or isinstance(found, f.LogDialectUnknown)


@pytest.mark.parametrize("function", ["llama_model_loader: - kv 1", "print_info", "load"])
def test_what_a_model_file_says_of_itself_is_not_even_looked_at(function: str) -> None:
    assert fact(f"{PREFIX}{function}: general.name = {OFFLOADED}") is None
    assert fact(f"{function}: general.name = {OFFLOADED}") is None


def test_a_warning_or_error_is_looked_at_whoever_prints_it() -> None:
    lost = f.DeviceLost(what="ErrorDeviceLost")
    assert (
        fact(
            "0.00.088.073 E srv  update_slots: decode() failed: vk::Queue::submit: ErrorDeviceLost"
        )
        == lost
    )
    assert fact("0.00.088.073 E load: std::bad_alloc") == f.OutOfMemory(device="host")
    assert fact("0.00.088.073 W sched_reserve: std::bad_alloc") == f.OutOfMemory(device="host")


@pytest.mark.parametrize(
    ("line", "family"),
    [
        ("load_tensors: offloaded 10/", None),
        ("load_tensors: offloaded ten of ten layers to GPU", "offload"),
        ("load_tensors: Vulkan0 model buffer size = 6,31 GB", "buffer"),
        ("load_tensors: Vulkan0 model buffer size = 1.2.3 MiB", "buffer"),
        ("slot print_timing: id 0 | task 0 | draft acceptance: 50 %", "acceptance"),
        ("spec common_specu: statistics draft-mtp: calls 3", "statistics"),
    ],
)
def test_a_known_family_in_unknown_words_is_reported(line: str, family: str | None) -> None:
    found = fact(line)
    assert getattr(found, "family", None) == family


def test_a_very_long_line_is_read_only_at_its_beginning() -> None:
    filler = "x" * MAX_LINE
    assert fact(f"{OFFLOADED} {filler}") == f.LayersOffloaded(count=9, total=10)
    assert fact(f"{filler} ErrorOutOfDeviceMemory") is None


@pytest.mark.parametrize("line", [line for line, _ in ERAS[::3] if line])
def test_no_line_is_long_enough_to_hold_the_daemon_up(line: str) -> None:
    pieces = re.findall(r"\s+|[^\s\w]+|\w+", line)
    for at, piece in enumerate(pieces):
        stretched = "".join(pieces[:at]) + piece * MAX_LINE + "".join(pieces[at + 1 :])
        began = time.process_time()
        fact(stretched[:MAX_LINE])
        assert time.process_time() - began < 0.5, stretched[:80]


def test_a_line_marked_as_information_tells_of_no_failure() -> None:
    text = "ErrorOutOfDeviceMemory"
    assert fact(f"0.00.088.073 E ggml: {text}") == f.OutOfMemory(device="device")
    assert fact(f"0.00.088.073 I ggml: {text}") is None


@pytest.mark.parametrize(
    "line",
    [
        '{"type":',
        '{"type":"log","msg":7}',
        '{"type":[[' + "[" * 4000,
        '{"type":"log"}',
        '{"type":"fit_memory_breakdown","data":{"rows":7}}',
        '{"type":"fit_memory_breakdown","data":{"rows":[7,{"name":3}]}}',
    ],
)
def test_broken_json_says_nothing(line: str) -> None:
    assert fact(line) is None


def test_a_breakdown_in_json_keeps_all_its_rows() -> None:
    (found,) = {
        table
        for _, table in recorded.pairs(recorded.lines("logs/b11434_log_jsonl.log"))
        if isinstance(table, f.BreakdownTable) and table.rows[0].self_mib == 13
    }
    assert found.rows == (
        f.Breakdown(
            device="Host",
            total_mib=None,
            free_mib=None,
            self_mib=13,
            model_mib=6,
            context_mib=1,
            compute_mib=5,
        ),
    )


# What a plain text search counts, the parser must find: nothing lost, nothing invented.
COUNTED: list[tuple[str, type[f.Fact]]] = [
    (": offloaded ", f.LayersOffloaded),
    (" buffer size =", f.Buffer),
    ("draft acceptance = ", f.DraftAcceptance),
    ("acc per pos = ", f.AcceptancePerPosition),
    ("statistics  ", f.SpecStatistics),
    (" tg_3s = ", f.Progress),
    ("n_rs_seq              =", f.RsSeq),
    (" MiB used,", f.FitLayers),
    ("is assigned to device CPU but", f.FusedOpMismatch),
    (": model loaded", f.ModelLoaded),
    ("initializing, n_slots =", f.SlotsReady),
    (": using device ", f.UsingDevice),
    ("projected to use ", f.FitProjected),
    ("cancel task, id_task", f.TaskCancelled),
    ("couldn't bind HTTP server", f.BindFailed),
    (": verbosity = ", f.Verbosity),
]


@pytest.mark.parametrize(("needle", "kind"), COUNTED, ids=[n.strip() for n, _ in COUNTED])
def test_every_recorded_line_of_a_family_is_read(needle: str, kind: type[f.Fact]) -> None:
    counted: Counter[str] = Counter()
    for name in recorded.LOGS:
        for line, found in recorded.everything(name):
            counted["searched"] += needle in line
            counted["read"] += isinstance(found, kind)
    assert counted["searched"] > 0
    assert counted["read"] == counted["searched"]


def test_no_recorded_line_is_of_an_unknown_dialect() -> None:
    unknown = [
        (name, found)
        for name in recorded.LOGS
        for _, found in recorded.everything(name)
        if isinstance(found, f.LogDialectUnknown)
    ]
    assert unknown == []
