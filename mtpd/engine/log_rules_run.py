"""How lines of running and dying engines read: requests, acceptance, failures.

Failure texts are looked for anywhere in a line: most come from libraries that know no
log prefix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.engine.facts import (
    Aborted,
    AcceptancePerPosition,
    BadArgument,
    BindFailed,
    CleaningUp,
    DeviceLost,
    DraftAcceptance,
    DraftVerified,
    EvalTime,
    Fact,
    GpuError,
    GpuHang,
    LibraryMissing,
    LoadFailed,
    NoMtpLayers,
    OutOfMemory,
    Phase,
    Progress,
    PromptReprocessed,
    SecondInterrupt,
    SlotReleased,
    SpecStatistics,
    TaskCancelled,
)
from mtpd.engine.log_rule import NUMBER, RATES, rule, to_float, to_floats, to_int

if TYPE_CHECKING:
    import re

__all__ = ["END_RULES", "REQUEST_RULES", "RUN_RULES"]

_SLOT = r"id +(?P<slot>\d+) \| task (?P<task>-?\d+) \| *"


def _acceptance(m: re.Match[str]) -> Fact:
    return DraftAcceptance(
        slot=to_int(m["slot"]),
        task=to_int(m["task"]),
        rate=float(m["rate"]),
        accepted=int(m["accepted"]),
        drafted=int(m["drafted"]),
        mean_len=to_float(m["mean"]),
        per_position=to_floats(m["rates"]),
    )


def _per_position(m: re.Match[str]) -> Fact:
    return AcceptancePerPosition(
        slot=int(m["slot"]), task=int(m["task"]), rates=to_floats(m["rates"]) or ()
    )


def _verified(m: re.Match[str]) -> Fact:
    return DraftVerified(
        slot=int(m["slot"]),
        task=int(m["task"]),
        accepted=int(m["accepted"]),
        drafted=int(m["drafted"]),
        restored=m["restored"] is not None,
    )


def _statistics(m: re.Match[str]) -> Fact:
    ms = None if m["mb"] is None else (float(m["mb"]), float(m["mg"]), float(m["ma"]))
    return SpecStatistics(
        kind=m["kind"],
        calls=(int(m["b"]), int(m["g"]), int(m["a"])),
        drafts=int(m["drafts"]),
        drafts_accepted=int(m["drafts_accepted"]),
        drafted=int(m["drafted"]),
        accepted=int(m["accepted"]),
        mean_len=to_float(m["mean"]),
        rates=to_floats(m["rates"]),
        ms=ms,
    )


def _eval(m: re.Match[str]) -> Fact:
    return EvalTime(
        slot=to_int(m["slot"]),
        task=to_int(m["task"]),
        phase=Phase.PROMPT if m["prompt"] else Phase.DECODE,
        ms=float(m["ms"]),
        tokens=int(m["tokens"]),
    )


def _progress(m: re.Match[str]) -> Fact:
    return Progress(
        slot=int(m["slot"]),
        task=int(m["task"]),
        tokens=int(m["n"]),
        tps=float(m["tg"]),
        tps_3s=float(m["tg3"]),
    )


_EVAL = rule(
    "eval time =",
    rf"^(?:slot +\w+: {_SLOT})? *(?P<prompt>prompt )? *eval time = *(?P<ms>{NUMBER}) ms"
    r" / *(?P<tokens>\d+) tokens",
    _eval,
)
_ACCEPTANCE = rule(
    "draft acceptance",
    rf"^(?:slot +\w+: {_SLOT})?draft acceptance(?: rate)? = (?P<rate>{NUMBER}) \("
    r" *(?P<accepted>\d+) accepted / *(?P<drafted>\d+) generated\)"
    rf"(?:, mean (?:len|acceptance length) = *(?P<mean>{NUMBER}))?"
    rf"(?:, acceptance rate per position = {RATES})?",
    _acceptance,
    family="acceptance",
)

REQUEST_RULES = (
    _EVAL,
    _ACCEPTANCE,
    rule(
        "acc per pos",
        rf"{_SLOT}acc per pos = {RATES}",
        _per_position,
        family="acceptance",
    ),
    rule(
        " draft tokens",
        rf"{_SLOT}accepted +(?P<accepted>\d+)/ *(?P<drafted>\d+) draft tokens"
        r"(?P<restored> \(restore checkpoint\))?$",
        _verified,
    ),
    rule(
        "n_gen =",
        rf"{_SLOT}n_gen = *(?P<n>\d+), tg = *(?P<tg>{NUMBER}) t/s, tg_3s = *(?P<tg3>{NUMBER})",
        _progress,
    ),
    rule(
        "stop processing: n_tokens =",
        rf"{_SLOT}stop processing: n_tokens = *(?P<n>\d+)",
        lambda m: SlotReleased(slot=int(m["slot"]), task=int(m["task"]), tokens=int(m["n"])),
    ),
    rule(
        "forcing full prompt re-processing",
        "forcing full prompt re-processing",
        lambda _: PromptReprocessed(),
    ),
)
"""Lines of one request, which name its slot and task."""

RUN_RULES = (
    rule(
        "statistics ",
        r"statistics +(?P<kind>[\w-]+): #calls\(b,g,a\) = *(?P<b>\d+) +(?P<g>\d+) +(?P<a>\d+),"
        r" #gen drafts = *(?P<drafts>\d+), #acc drafts = *(?P<drafts_accepted>\d+),"
        r" #gen tokens = *(?P<drafted>\d+), #acc tokens = *(?P<accepted>\d+)"
        rf"(?:, #mean acc len = *(?P<mean>{NUMBER}), #acc rate/pos = {RATES})?"
        rf"(?:, dur\(b,g,a\) = *(?P<mb>{NUMBER}), *(?P<mg>{NUMBER}), *(?P<ma>{NUMBER}) ms)?",
        _statistics,
        family="statistics",
    ),
    rule(
        "cancel task",
        r"cancel task, id_task = (?P<task>\d+)",
        lambda m: TaskCancelled(task=int(m["task"])),
    ),
    _EVAL,
    _ACCEPTANCE,
    rule("cleaning up before exit", "cleaning up before exit", lambda _: CleaningUp()),
)
"""Lines of running engines that name no slot; the oldest builds print requests like this."""


_MEMORY = (
    rule(
        "cudaMalloc failed",
        r"allocating (?P<amount>[\d.]+ MiB) on device (?P<device>\d+): cudaMalloc failed",
        lambda m: OutOfMemory(device=f"device {m['device']}", amount=m["amount"]),
    ),
    rule(
        " error: out of memory",
        r"(?:ROCm|CUDA|HIP) error: out of memory",
        lambda _: OutOfMemory(device="device"),
    ),
    rule(
        "emory allocation of size",
        r"ggml_vulkan: (?:Device m|M)emory allocation of size (?P<amount>\d+) failed",
        lambda m: OutOfMemory(device="device", amount=f"{m['amount']} bytes"),
    ),
    rule("OutOfHostMemory", "ErrorOutOfHostMemory", lambda _: OutOfMemory(device="host")),
    rule("OutOfDeviceMemory", "ErrorOutOfDeviceMemory", lambda _: OutOfMemory(device="device")),
    rule(
        "insufficient memory (attempted",
        r"insufficient memory \(attempted to allocate (?P<amount>[\d.]+ \w+)\)",
        lambda m: OutOfMemory(device="host", amount=m["amount"]),
    ),
    rule(
        " buffer of size ",
        r"failed to allocate (?P<device>\S+) buffer of size (?P<amount>\d+)",
        lambda m: OutOfMemory(device=m["device"], amount=f"{m['amount']} bytes"),
    ),
    rule(
        "unable to allocate ",
        r"unable to allocate (?P<device>\S+) buffer",
        lambda m: OutOfMemory(device=m["device"]),
    ),
    rule(
        "uffer size exceeds device",
        "Requested buffer size exceeds device buffer size limit",
        lambda _: OutOfMemory(device="device"),
    ),
    rule(
        "No suitable memory type found",
        "No suitable memory type found",
        lambda _: OutOfMemory(device="device"),
    ),
    rule(
        "failed to allocate buffer for ",
        r"failed to allocate buffer for (?:kv|rs) cache",
        lambda _: OutOfMemory(device="device"),
    ),
    rule(
        "failed to allocate compute ",
        r"failed to allocate compute (?:pp |tg )?buffers",
        lambda _: OutOfMemory(device="device"),
    ),
    rule("std::bad_alloc", "std::bad_alloc", lambda _: OutOfMemory(device="host")),
)

_GPU = (
    rule(
        "by GPU node-",
        r"(?P<what>HW Exception by GPU node-\d+ .*reason ?: ?(?:GPU Hang|ECC).*)",
        lambda m: GpuHang(what=m["what"]),
    ),
    rule(
        "by GPU node-",
        r"(?P<what>Memory access fault by GPU node-\d+.*)",
        lambda m: GpuError(what=m["what"]),
    ),
    rule(
        "by agent node-",
        r"(?P<what>Memory critical error by agent node-\d+.*)",
        lambda m: GpuError(what=m["what"]),
    ),
    rule(
        "borting with error : HSA_",
        r"(?P<what>Queue 0x\w+ [Aa]borting with error : HSA_\w+.*)",
        lambda m: GpuError(what=m["what"]),
    ),
    rule(
        "eviceLost",
        r"(?P<what>(?:ErrorDeviceLost|DeviceLostError).*)",
        lambda m: DeviceLost(what=m["what"]),
    ),
    rule(
        "device lost on",
        r"ggml_vulkan: (?P<what>device lost on \S+)",
        lambda m: DeviceLost(what=m["what"]),
    ),
    rule(
        "The CS has been",
        r"(?P<what>The CS has been (?:cancelled|rejected).*)",
        lambda m: DeviceLost(what=m["what"]),
    ),
    rule(
        " error: ",
        r"(?:ROCm|CUDA|HIP) error: (?P<what>.+)",
        lambda m: GpuError(what=m["what"]),
    ),
)

_LOAD = (
    rule(
        "failed to open GGUF file",
        r"failed to open GGUF file '(?P<path>.*)' \((?P<why>.*)\)",
        lambda m: LoadFailed(why=m["why"], path=m["path"]),
    ),
    rule(
        "gguf_init_from_",
        r"^gguf_init_from_\w+: (?P<why>.*)",
        lambda m: LoadFailed(why=m["why"]),
    ),
    rule(
        "error loading model: ",
        r"error loading model: (?P<why>.*)",
        lambda m: LoadFailed(why=m["why"]),
    ),
    rule(
        "failed to load model, '",
        r"failed to load model, '(?P<path>.*)'",
        lambda m: LoadFailed(why="", path=m["path"]),
    ),
    rule(
        "exiting due to model loading error",
        "exiting due to model loading error",
        lambda _: LoadFailed(why=""),
    ),
    rule(
        "doesn't contain MTP layers",
        "context type MTP requested but model doesn't contain MTP layers",
        lambda _: NoMtpLayers(),
    ),
)

_PROCESS = (
    rule(
        "couldn't bind HTTP server socket",
        r"couldn't bind HTTP server socket, hostname: (?P<host>\S+), port: (?P<port>\d+)",
        lambda m: BindFailed(host=m["host"], port=int(m["port"])),
    ),
    rule(
        "error: invalid argument: ",
        r"^error: invalid argument: (?P<arg>.*)",
        lambda m: BadArgument(argument=m["arg"], why="this build does not know it"),
    ),
    rule(
        "error while handling ",
        r"^error while handling (?:argument|environment variable) \"(?P<arg>.*?)\": (?P<why>.*)",
        lambda m: BadArgument(argument=m["arg"], why=m["why"]),
    ),
    rule(
        "error while loading shared libraries: ",
        r"error while loading shared libraries: (?P<name>[^:]+)",
        lambda m: LibraryMissing(name=m["name"]),
    ),
    rule(
        "No module named ",
        r"^ModuleNotFoundError: No module named '(?P<name>.*)'",
        lambda m: LibraryMissing(name=m["name"]),
    ),
    rule(
        "error: the embedded engine needs",
        r"^error: the embedded engine needs the (?P<name>\S+) wheel",
        lambda m: LibraryMissing(name=m["name"]),
    ),
    rule(
        "error: ",
        r"^error: (?P<why>.+)",
        lambda m: BadArgument(argument="", why=m["why"]),
    ),
    rule("GGML_ASSERT(", r"(?P<what>GGML_ASSERT\(.*\) failed)", lambda m: Aborted(what=m["what"])),
    rule(
        "that cannot run the operation",
        r"(?P<what>pre-allocated tensor .*that cannot run the operation.*)",
        lambda m: Aborted(what=m["what"]),
    ),
    rule("terminate called", r"^(?P<what>terminate called.*)", lambda m: Aborted(what=m["what"])),
    rule("Received second interrupt", "^Received second interrupt", lambda _: SecondInterrupt()),
)

END_RULES = _MEMORY + _GPU + _LOAD + _PROCESS
"""Lines that tell why an engine ended."""
