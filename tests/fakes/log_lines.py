"""The fake engine's log: llama.cpp b11434's lines, so that the same parser reads both."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fakes.generation import Totals
    from tests.fakes.script import Device, Script

__all__ = ["NOISE_BYTES", "Log", "Start", "load_lines", "request_lines"]

NOISE_BYTES = 256
"""Of one line that says nothing."""

LEVELS = {"E": 1, "W": 2, "I": 3, "T": 4}
"""Verbosity from which a line is printed; T is an I that the default hides."""

MODEL_MIB = 220.0
"""Weights of one layer."""

KV_MIB, RS_MIB, COMPUTE_MIB = 8.5, 4.7, 134.28
"""Per layer and slot: key/value cache, recurrent state of one row; then the work buffer."""

LOADING = "I srv    load_model: loading model '{model}'"

FIT = """\
T cmn  common_init_: fitting params to device memory ...
T common_params_fit_impl: projected to use {used} MiB of device memory vs. {free} MiB of free \
device memory"""

FIT_WELL = """\
T common_params_fit_impl: will leave {left} >= 1024 MiB of free device memory, no changes needed"""

FIT_BADLY = """\
T common_params_fit_impl: cannot meet free memory target of 1024 MiB, need to reduce device memory \
by 248 MiB
T common_params_fit_impl:   - {name} ({description}): {layers} layers,  15342 MiB used,   1025 MiB \
free"""

DEVICE = """\
T common_fit_params: successfully fit params to free device memory
T llama_prepare_model_devices: using device {name} ({description}) ({bus_id}) - {free} MiB free
T load_tensors: offloading output layer to GPU
T load_tensors: offloading {repeating} repeating layers to GPU
T load_tensors: offloaded {offloaded}/{layers} layers to GPU"""

MTP = """\
I common_speculative_init_result: creating MTP draft context against the target model '{model}'
T spec common_specu: adding speculative implementation 'draft-mtp'
T spec common_specu: - n_max={depth}, n_min=0, p_min=0.00, n_embd=128, backend_sampling=1"""

SLOTS = (
    "I srv    load_model: initializing, n_slots = {slots}, n_ctx_slot = {context}, "
    "kv_unified = 'false'"
)

RECURRENT = (
    "T llama_memory_recurrent: size = {total:8.2f} MiB ({slots:6} cells, {layers:3} layers, "
    "{slots:2} seqs {depth:2} rs_seq), R (f32):   33.75 MiB, S (f32):  864.00 MiB"
)

TIMING = """\
I {head} prompt eval time = {prompt_ms:10.2f} ms / {prompt_n:5} tokens ({prompt_per_token_ms:8.2f} \
ms per token, {prompt_per_second:8.2f} tokens per second)
I {head}        eval time = {predicted_ms:10.2f} ms / {predicted_n:5} tokens \
({predicted_per_token_ms:8.2f} ms per token, {predicted_per_second:8.2f} tokens per second)"""

DRAFTED = """\
I {head} draft acceptance = {rate:.5f} ({accepted:5} accepted / {drafted:5} generated), mean len = \
{mean:5.2f}
T {head}      acc per pos = ({rates})"""

STATISTICS = (
    "T spec common_specu: statistics        draft-mtp: #calls(b,g,a) = {requests:4} {drafts:6} "
    "{drafts:6}, #gen drafts = {drafts:6}, #acc drafts = {first:5}, #gen tokens = {drafted:6}, "
    "#acc tokens = {accepted:5}, #mean acc len = {mean:.2f}, #acc rate/pos = ({rates}), "
    "dur(b,g,a) = 0.003, {ms:.3f}, 0.012 ms"
)

RELEASE = (
    "I slot      release: id  0 | task {task} | stop processing: n_tokens = {length}, truncated = 0"
)


class Log:
    """Writes lines with llama.cpp's prefix to stderr."""

    def __init__(self, verbosity: int) -> None:
        self.verbosity = verbosity
        self._start = time.monotonic()

    def say(self, kind: str, text: str) -> None:
        """Write one line, if the verbosity shows its kind."""
        if self.verbosity < LEVELS[kind]:
            return
        micros = int((time.monotonic() - self._start) * 1e6)
        minutes, rest = divmod(micros, 60_000_000)
        seconds, rest = divmod(rest, 1_000_000)
        stamp = f"{minutes}.{seconds:02}.{rest // 1000:03}.{rest % 1000:03}"
        self.raw(f"{stamp} {'I' if kind == 'T' else kind} {text}")

    def noise(self, lines: int, task: int) -> None:
        """Write lines of ``NOISE_BYTES`` that say nothing, at once."""
        line = f"noise of task {task} ".ljust(NOISE_BYTES - 1, "x")
        self.raw("\n".join([line] * lines))

    def raw(self, text: str) -> None:
        """Write one line without a prefix."""
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What the start-up log depends on; `layers_on_device` is what `-ngl` gave, or None."""

    model: str
    slots: int
    context: int
    depth: int
    layers_on_device: int | None


def load_lines(script: Script, start: Start) -> Iterator[tuple[str, str]]:
    """Kind and text of each line between "loading model" and "model loaded"."""
    on_host = _layers_on_host(script, start)
    yield from _lines(LOADING, model=start.model)
    if script.device is not None:
        yield from _device(script, script.device, on_host)
    yield from _buffers(script, start, on_host)
    if start.depth:
        yield from _lines(MTP, model=start.model, depth=start.depth)
    yield from _lines(SLOTS, slots=start.slots, context=start.context // start.slots)


def _lines(template: str, **values: object) -> Iterator[tuple[str, str]]:
    """Each line of a template begins with its kind and a blank."""
    for line in template.splitlines():
        kind, _, text = line.partition(" ")
        yield kind, text.format(**values)


def _layers_on_host(script: Script, start: Start) -> int:
    if script.device is None:
        return 0
    if script.evict_at_depth is not None and start.depth >= script.evict_at_depth:
        return 1
    if start.layers_on_device is not None and 0 <= start.layers_on_device < script.layers:
        return script.layers - start.layers_on_device
    return 0


def _device(script: Script, device: Device, on_host: int) -> Iterator[tuple[str, str]]:
    used = int(MODEL_MIB * script.layers) + 300
    yield from _lines(FIT, used=used, free=device.free_mib)
    if on_host:
        yield from _lines(
            FIT_BADLY,
            name=device.name,
            description=device.description,
            layers=script.layers - on_host,
        )
    else:
        yield from _lines(FIT_WELL, left=device.free_mib - used)
    yield from _lines(
        DEVICE,
        name=device.name,
        description=device.description,
        free=device.free_mib,
        bus_id=device.bus_id,
        repeating=script.layers - 2 - max(0, on_host - 1),
        offloaded=script.layers - on_host,
        layers=script.layers,
    )


def _buffers(script: Script, start: Start, on_host: int) -> Iterator[tuple[str, str]]:
    name = script.device.name if script.device else "CPU"
    layers = script.layers - 1
    recurrent, attention = layers * 3 // 4, layers // 4
    rows = start.slots * (1 + start.depth)
    mapped = 682.03 + MODEL_MIB * (on_host if script.device else layers)
    yield "T", _buffer("load_tensors", "CPU_Mapped", "model", mapped)
    if script.device:
        yield "T", _buffer("load_tensors", name, "model", MODEL_MIB * (layers - on_host))
    yield "T", f"llama_context: n_rs_seq              = {start.depth}"
    yield "T", _buffer("llama_kv_cache", name, "KV", KV_MIB * attention)
    if on_host:
        yield "T", _buffer("llama_memory_recurrent", "CPU", "RS", RS_MIB * rows * on_host)
    here = RS_MIB * rows * max(0, recurrent - on_host)
    yield "T", _buffer("llama_memory_recurrent", name, "RS", here)
    yield from _lines(
        RECURRENT,
        total=RS_MIB * rows * recurrent,
        slots=start.slots,
        layers=layers,
        depth=start.depth,
    )
    yield "T", _buffer("sched_reserve", name, "compute", COMPUTE_MIB)


def _buffer(function: str, name: str, kind: str, mib: float) -> str:
    return f"{function}: {name:>12} {kind} buffer size = {mib:8.2f} MiB"


def request_lines(totals: Totals, process: Totals, task: int) -> Iterator[tuple[str, str]]:
    """Kind and text of each line that a request leaves at its end."""
    head = f"slot print_timing: id  0 | task {task} |"
    yield from _lines(TIMING, head=head, **totals.timings())
    if totals.drafts:
        yield from _lines(
            DRAFTED,
            head=head,
            rate=totals.accepted / totals.drafted,
            accepted=totals.accepted,
            drafted=totals.drafted,
            mean=1 + totals.accepted / totals.drafts,
            rates=_rates(totals),
        )
        yield from _lines(
            STATISTICS,
            requests=process.requests,
            drafts=process.drafts,
            first=process.per_position[0],
            drafted=process.drafted,
            accepted=process.accepted,
            mean=1 + process.accepted / process.drafts,
            rates=_rates(process),
            ms=process.predicted_ms / 10,
        )
    yield from _lines(RELEASE, task=task, length=totals.prompt_n + totals.predicted_n)


def _rates(totals: Totals) -> str:
    return ", ".join(f"{count / totals.drafts:.3f}" for count in totals.per_position)
