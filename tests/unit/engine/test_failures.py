from __future__ import annotations

from typing import Any

import pytest

from mtpd.engine.failures import classify
from mtpd.engine.failures_seen import Asked, asked
from mtpd.types import FailureClass
from tests.unit.engine import recorded

EXPECTED = recorded.expected("failures")


@pytest.mark.parametrize(
    "entry", EXPECTED, ids=[f"{e['file']}-{e.get('exit', e.get('signal'))}" for e in EXPECTED]
)
def test_a_recorded_failure_is_classified_as_a_person_did(entry: dict[str, Any]) -> None:
    lines = recorded.lines(entry["file"])
    found = classify(
        exit_code=entry.get("exit"),
        signal=entry.get("signal"),
        ready_before=entry.get("ready", False),
        lines=lines,
    )
    assert found.failure.value == entry["class"]
    for words in entry["says"]:
        assert words in found.sentence
    if "line" in entry:
        assert found.line is not None
        assert entry["line"] in found.line
        assert found.line in lines


@pytest.mark.parametrize("entry", EXPECTED, ids=[e["file"] for e in EXPECTED])
def test_every_failure_gives_one_sentence_and_a_hint(entry: dict[str, Any]) -> None:
    found = classify(
        exit_code=entry.get("exit"),
        signal=entry.get("signal"),
        ready_before=entry.get("ready", False),
        lines=recorded.lines(entry["file"]),
    )
    assert "\n" not in found.sentence
    assert not found.sentence.endswith(".")
    assert found.hint.endswith(".")


LINES: list[tuple[str, FailureClass, str]] = [
    (
        "/opt/llama-server: error while loading shared libraries: libhipblas.so.2: cannot open",
        FailureClass.CONFIG,
        "libhipblas.so.2",
    ),
    (
        "error: the embedded engine needs the xllamacpp wheel, which is not installed",
        FailureClass.CONFIG,
        "xllamacpp",
    ),
    (
        "error: no model is given: -m FNAME is required",
        FailureClass.CONFIG,
        "no model is given: -m FNAME is required",
    ),
    (
        "0.1 E gguf_init_from_file: failed to open GGUF file '/m.gguf' (Permission denied)",
        FailureClass.CONFIG,
        "/m.gguf cannot be read: permission denied",
    ),
    (
        "0.1 E llama_model_load: error loading model: unknown model architecture: 'qwen99'",
        FailureClass.CONFIG,
        "does not know the architecture",
    ),
    (
        "0.1 E llama_model_load: error loading model: wrong number of tensors",
        FailureClass.CONFIG,
        "wrong number of tensors",
    ),
    (
        "allocating 512.00 MiB on device 0: cudaMalloc failed: out of memory",
        FailureClass.OOM_VRAM,
        "512.00 MiB",
    ),
    (
        "ggml_vulkan: Requested buffer size exceeds device buffer size limit: ErrorOutOfDevice",
        FailureClass.OOM_VRAM,
        "device memory",
    ),
    (
        "ggml_vulkan: No suitable memory type found: ErrorOutOfDeviceMemory",
        FailureClass.OOM_VRAM,
        "device memory",
    ),
    (
        "0.1 E llama_init_from_model: failed to allocate buffer for rs cache",
        FailureClass.OOM_VRAM,
        "device memory",
    ),
    (
        "0.1 E graph_reserve: failed to allocate compute pp buffers",
        FailureClass.OOM_VRAM,
        "device memory",
    ),
    (
        "Memory critical error by agent node-1 (Agent handle: 0x5) on address 0x7.",
        FailureClass.CRASH,
        "Memory critical error",
    ),
    (
        ":0:rocdevice.cpp:2995: Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR",
        FailureClass.CRASH,
        "HSA_STATUS_ERROR",
    ),
    (
        "ggml_vulkan: device lost on Vulkan0",
        FailureClass.DEVICE_LOST,
        "device lost on Vulkan0",
    ),
    (
        "HW Exception by GPU node-2 (Agent handle: 0x5) reason : ECC",
        FailureClass.GPU_HANG,
        "ECC",
    ),
    ("ROCm error: out of memory", FailureClass.OOM_VRAM, "device memory"),
    ("terminate called after throwing std::bad_alloc", FailureClass.OOM_HOST, "host memory"),
    (
        "ROCm error: no kernel image is available for execution on the device",
        FailureClass.CONFIG,
        "not built for this GPU",
    ),
    ("ROCm error: unspecified launch failure", FailureClass.CRASH, "unspecified launch failure"),
    (
        "Memory access fault by GPU node-1 (Agent handle: 0x5) on address 0x7. Reason: Unknown.",
        FailureClass.CRASH,
        "Memory access fault",
    ),
    (
        "HW Exception by GPU node-1 (Agent handle: 0x5) reason :GPU Hang",
        FailureClass.GPU_HANG,
        "GPU Hang",
    ),
    (
        "0.1 E srv update_slots: decode() failed: vk::Queue::submit: ErrorDeviceLost",
        FailureClass.DEVICE_LOST,
        "ErrorDeviceLost",
    ),
    (
        "radv/amdgpu: The CS has been cancelled because the context is lost.",
        FailureClass.DEVICE_LOST,
        "CS has been cancelled",
    ),
    ("ggml.c:1: GGML_ASSERT(a == b) failed", FailureClass.CRASH, "GGML_ASSERT(a == b) failed"),
    ("terminate called without an active exception", FailureClass.CRASH, "terminate called"),
    ("0.1 E srv  llama_server: exiting due to model loading error", FailureClass.CONFIG, "loaded"),
]


@pytest.mark.parametrize(("line", "failure", "says"), LINES, ids=[x[0][:50] for x in LINES])
def test_a_telling_line_decides_whatever_the_exit_code(
    line: str, failure: FailureClass, says: str
) -> None:
    for exit_code, signal in ((1, None), (None, 6)):
        found = classify(
            exit_code=exit_code,
            signal=signal,
            ready_before=False,
            lines=["before", line, "after"],
        )
        assert (found.failure, found.line) == (failure, line)
        assert says in found.sentence


def test_running_out_of_memory_explains_the_errors_that_follow_it() -> None:
    lines = ["ROCm error: unknown error", "cudaMalloc failed", "ErrorOutOfDeviceMemory"]
    found = classify(exit_code=None, signal=6, ready_before=True, lines=lines)
    assert found.failure is FailureClass.OOM_VRAM


def test_slots_and_context_are_named_as_the_cause_before_the_depth() -> None:
    argv = ("llama-server", "--ctx-size", "32768", "--parallel", "4", "--spec-draft-n-max", "3")
    found = classify(
        exit_code=1,
        signal=None,
        ready_before=False,
        lines=["allocating 512.00 MiB on device 0: cudaMalloc failed: out of memory"],
        asked=asked(argv),
    )
    assert "4 slots and a context of 32768 tokens, drafting 3 deep" in found.sentence
    assert found.hint.index("slots") < found.hint.index("context") < found.hint.index("depth")


def test_what_a_command_line_does_not_say_is_not_made_up() -> None:
    assert asked(()) == Asked()
    assert asked(("llama-server", "-np", "1", "-c")) == Asked(slots=1)
    assert asked(("llama-server", "-np", "many", "-c", "4096", "-c", "8192")) == Asked(context=8192)
    found = classify(
        exit_code=1,
        signal=None,
        ready_before=False,
        lines=["ROCm error: out of memory"],
        asked=Asked(slots=1),
    )
    assert found.sentence == "there is not enough device memory"
    one = classify(
        exit_code=1,
        signal=None,
        ready_before=False,
        lines=["ROCm error: out of memory"],
        asked=Asked(slots=1, context=4096),
    )
    assert one.sentence.endswith("for 1 slot and a context of 4096 tokens")


STATUSES: list[tuple[int | None, int | None, bool, FailureClass, str]] = [
    (132, None, False, FailureClass.CONFIG, "built for another CPU"),
    (-4, None, False, FailureClass.CONFIG, "built for another CPU"),
    (None, 4, False, FailureClass.CONFIG, "built for another CPU"),
    (126, None, False, FailureClass.CONFIG, "cannot be executed"),
    (127, None, False, FailureClass.CONFIG, "not found"),
    (137, None, True, FailureClass.OOM_HOST, "SIGKILL"),
    (None, 9, False, FailureClass.OOM_HOST, "SIGKILL"),
    (None, 11, True, FailureClass.CRASH, "SIGSEGV"),
    (139, None, True, FailureClass.CRASH, "SIGSEGV"),
    (None, 64, True, FailureClass.CRASH, "signal 64"),
    (None, 15, False, FailureClass.KILLED_BY_OPERATOR, "SIGTERM"),
    (None, 2, True, FailureClass.KILLED_BY_OPERATOR, "SIGINT"),
    (0, None, False, FailureClass.CONFIG, "without a word"),
    (0, None, True, FailureClass.KILLED_BY_OPERATOR, "stopped"),
    (1, None, False, FailureClass.CRASH, "code 1 before it was ready"),
    (3, None, True, FailureClass.CRASH, "code 3 after it had been ready"),
    (None, None, True, FailureClass.HANG, "neither answers nor ends"),
]


@pytest.mark.parametrize(("exit_code", "signal", "ready", "failure", "says"), STATUSES)
def test_without_a_telling_line_the_status_decides(
    exit_code: int | None,
    signal: int | None,
    *,
    ready: bool,
    failure: FailureClass,
    says: str,
) -> None:
    found = classify(exit_code=exit_code, signal=signal, ready_before=ready, lines=["hello"])
    assert found.failure is failure
    assert says in found.sentence
    assert found.line is None


@pytest.mark.parametrize(
    ("oom_kills", "failure", "says"),
    [
        (None, FailureClass.OOM_HOST, "most likely for want of host memory"),
        (0, FailureClass.CRASH, "from outside: the kernel has killed nothing"),
        (
            2,
            FailureClass.OOM_HOST,
            "most likely for want of host memory: the kernel has killed 2 of",
        ),
    ],
)
def test_the_kernels_count_says_whose_sigkill_it_was(
    oom_kills: int | None, failure: FailureClass, says: str
) -> None:
    found = classify(
        exit_code=None, signal=9, ready_before=True, lines=["hello"], oom_kills=oom_kills
    )
    assert found.failure is failure
    assert says in found.sentence


def test_the_wrong_cpu_quotes_the_last_thing_it_said() -> None:
    lines = ["0.1 I srv    load_model: loading model '/m.gguf'", "AMX is not ready to be used!"]
    found = classify(exit_code=None, signal=4, ready_before=False, lines=lines)
    assert found.failure is FailureClass.CONFIG
    assert found.line == "AMX is not ready to be used!"
    assert "mtpd[embedded]" in found.hint


def test_a_port_in_use_names_the_command_that_shows_who_holds_it() -> None:
    lines = recorded.lines("logs/b11434_port_in_use_lv3.log")
    found = classify(exit_code=1, signal=None, ready_before=False, lines=lines)
    assert "ss -ltnp 'sport = :18100'" in found.hint
