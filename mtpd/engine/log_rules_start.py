"""How start-up lines read: devices, weights, buffers, speculation, fit.

Texts of b10434 and b11434 are tested on raw logs, older ones were read in the sources.
Expressions for memory are anchored at the printing function, so that a text quoted
inside another line (a prompt, a file's name) is not taken for evidence.
"""

from __future__ import annotations

import re

from mtpd.engine.facts import (
    Breakdown,
    Buffer,
    DeviceListed,
    Fact,
    FitContextReduced,
    FitFailed,
    FitLayers,
    FitOk,
    FitProjected,
    FitShort,
    FitTrial,
    FusedOpDisabled,
    FusedOpMismatch,
    GpuInitFailed,
    LayersOffloaded,
    Listening,
    ModelLoaded,
    ModelLoading,
    MtpContext,
    NoRollback,
    RecurrentState,
    RsSeq,
    SlotsReady,
    SpecImplementation,
    SpecParameters,
    SyntheticAcceptance,
    UsingDevice,
    Verbosity,
    WeightsLoading,
)
from mtpd.engine.log_rule import NUMBER, rule, to_int

__all__ = ["START_RULES"]

_BUS_ID = re.compile(r"[0-9A-Fa-f:.]+", re.ASCII).fullmatch
"""Other texts in that place ("unknown id") say nothing."""

_SRV = r"^(?:srv +)?\w+: "
_CMN = r"^(?:cmn +|spec +)?\w+: "


def _buffer(m: re.Match[str]) -> Fact:
    return Buffer(
        context=m["fn"],
        device=m["device"].partition("[")[0],
        kind=m["kind"] or "",
        mib=float(m["mib"]),
    )


def _recurrent(m: re.Match[str]) -> Fact:
    return RecurrentState(
        mib=float(m["mib"]),
        cells=int(m["cells"]),
        layers=int(m["layers"]),
        sequences=int(m["seqs"]),
        rollback_rows=to_int(m["rows"]),
    )


def _breakdown(m: re.Match[str]) -> Fact:
    return Breakdown(
        device=m["device"],
        total_mib=to_int(m["total"]),
        free_mib=to_int(m["free"]),
        self_mib=int(m["self"]),
        model_mib=int(m["model"]),
        context_mib=int(m["context"]),
        compute_mib=int(m["compute"]),
    )


def _device_listed(m: re.Match[str]) -> Fact:
    return DeviceListed(
        name=m["device"],
        description=m["text"],
        total_mib=int(m["total"]),
        free_mib=int(m["free"]),
    )


def _using(m: re.Match[str]) -> Fact:
    known = m["bus"] is not None and _BUS_ID(m["bus"]) is not None
    return UsingDevice(
        name=m["device"],
        description=m["text"],
        free_mib=int(m["free"]),
        bus_id=m["bus"] if known else None,
    )


def _mismatch(m: re.Match[str]) -> Fact:
    return FusedOpMismatch(
        layer=int(m["layer"]), layer_device=m["where"], op=m["op"], op_device=m["op_where"]
    )


def _fit_layers(m: re.Match[str]) -> Fact:
    return FitLayers(
        device=m["device"],
        layers=int(m["layers"]),
        overflowing=to_int(m["over"]) or 0,
        used_mib=int(m["used"]),
        free_mib=int(m["free"]),
    )


_MEMORY = (
    rule(
        "buffer size =",
        r"^(?P<fn>\w+): +(?P<device>\S+) +(?:(?P<kind>\w+) +)?"
        rf"buffer size = *(?P<mib>{NUMBER}) MiB",
        _buffer,
        family="buffer",
    ),
    rule("offloading ", r"^\w+: offloading ", lambda _: None),
    rule(
        "layers to GPU",
        r"^\w+: offloaded (?P<n>\d+)/(?P<m>\d+) layers to GPU",
        lambda m: LayersOffloaded(count=int(m["n"]), total=int(m["m"])),
        family="offload",
    ),
    rule("loading model tensors", r"^\w+: loading model tensors", lambda _: WeightsLoading()),
    rule(
        "loading model '",
        rf"{_SRV}loading model '(?P<path>.*)'",
        lambda m: ModelLoading(path=m["path"]),
    ),
    rule(
        " cells,",
        rf"^\w+: size = *(?P<mib>{NUMBER}) MiB \( *(?P<cells>\d+) cells, *(?P<layers>\d+) layers,"
        r" *(?P<seqs>\d+) seqs(?: +(?P<rows>\d+) rs_seq)?\), R ",
        _recurrent,
    ),
    rule("n_rs_seq", r"^\w+: n_rs_seq += (?P<n>\d+)", lambda m: RsSeq(rows=int(m["n"]))),
    rule(
        "breakdown_print: |",
        r"\| +- (?P<device>\S+) (?:\(.*\))? *\| *(?:(?P<total>\d+) = *(?P<free>\d+) \+ \()?"
        r" *(?P<self>\d+) = *(?P<model>\d+) \+ *(?P<context>\d+) \+ *(?P<compute>\d+)",
        _breakdown,
    ),
    rule(
        "MiB free)",
        rf"{_CMN} +- (?P<device>\S+) *: (?P<text>.*)"
        r" \((?P<total>\d+) MiB, (?P<free>\d+) MiB free\)",
        _device_listed,
    ),
    rule(
        "using device ",
        r"^\w+: using device (?P<device>\S+) \((?P<text>.+?)\)"
        r"(?: \((?P<bus>[^()]*)\))? - (?P<free>\d+) MiB free",
        _using,
    ),
    rule(
        "failed to initialize ",
        r"failed to initialize (?P<what>(?:ROCm|CUDA|HIP|MUSA): .+)",
        lambda m: GpuInitFailed(what=m["what"]),
    ),
    rule(
        "ggml_vulkan: ",
        r"^(?:\w+: )?ggml_vulkan: (?P<what>(?:No devices found|Invalid device index).*)",
        lambda m: GpuInitFailed(what=f"Vulkan: {m['what']}"),
    ),
)

_FIT = (
    rule(
        "projected to use",
        r"projected to use (?P<used>\d+) MiB of (?P<where>device|host) memory"
        r" vs\. (?P<free>\d+) MiB",
        lambda m: FitProjected(used_mib=int(m["used"]), free_mib=int(m["free"]), where=m["where"]),
        family="fit",
    ),
    rule(
        "no changes needed",
        r"will leave (?P<left>\d+) >= (?P<target>\d+) MiB of",
        lambda m: FitOk(left_mib=int(m["left"]), target_mib=int(m["target"])),
    ),
    rule(
        "cannot meet free memory target",
        r"cannot meet free memory target of (?P<target>\d+) MiB,"
        r" need to reduce device memory by (?P<by>\d+) MiB",
        lambda m: FitShort(target_mib=int(m["target"]), by_mib=int(m["by"])),
    ),
    rule(
        "context size reduced from",
        r"context size reduced from (?P<a>\d+) to (?P<b>\d+)",
        lambda m: FitContextReduced(before=int(m["a"]), after=int(m["b"])),
    ),
    rule(
        ", n_layer=",
        r"^\w+: id=(?P<id>\d+), n_layer= *(?P<n>\d+),.* mem= *(?P<mib>\d+) MiB",
        lambda m: FitTrial(device_index=int(m["id"]), layers=int(m["n"]), mib=int(m["mib"])),
    ),
    rule(
        "MiB used,",
        r"^\w+: +- (?P<device>\S+) \(.*\): +(?P<layers>\d+) layers"
        r"(?: \( *(?P<over>\d+) overflowing\))?, +(?P<used>\d+) MiB used,"
        r" +(?P<free>-?\d+) MiB free",
        _fit_layers,
        family="fit",
    ),
    rule(
        "failed to fit params",
        r"failed to fit params to free device memory: (?P<why>.*)",
        lambda m: FitFailed(why=m["why"]),
    ),
    rule(
        "while trying to fit params",
        r"while trying to fit params to free device memory: (?P<why>.*)",
        lambda m: FitFailed(why=m["why"]),
    ),
)

_FUSED = (
    rule(
        "is assigned to device",
        r"layer (?P<layer>\d+) is assigned to device (?P<where>\S+) but (?:the )?"
        r"(?P<op>fused .*?|Flash Attention) (?:tensor )?is assigned to device (?P<op_where>\S+)",
        _mismatch,
    ),
    rule(
        "set to disabled",
        r"^\w+: (?P<op>.+?) not supported, set to disabled",
        lambda m: FusedOpDisabled(op=m["op"]),
    ),
)

_SERVER = (
    rule("verbosity = ", r"verbosity = (?P<n>\d+)", lambda m: Verbosity(level=int(m["n"]))),
    rule("creating MTP draft context", "creating MTP draft context", lambda _: MtpContext()),
    rule(
        "adding speculative implementation",
        r"adding speculative implementation '(?P<kind>[\w-]+)'",
        lambda m: SpecImplementation(kind=m["kind"]),
    ),
    rule(
        "- n_max=",
        rf"- n_max=(?P<max>\d+), n_min=(?P<min>\d+), p_min=(?P<p>{NUMBER})",
        lambda m: SpecParameters(n_max=int(m["max"]), n_min=int(m["min"]), p_min=float(m["p"])),
    ),
    rule(
        "does not support partial sequence removal",
        "does not support partial sequence removal",
        lambda _: NoRollback(),
    ),
    rule(
        "synthetic speculative acceptance is enabled",
        "synthetic speculative acceptance is enabled",
        lambda _: SyntheticAcceptance(),
    ),
    rule(
        "initializing, n_slots =",
        rf"{_SRV}initializing, n_slots = (?P<n>\d+), n_ctx_slot = (?P<ctx>\d+)",
        lambda m: SlotsReady(slots=int(m["n"]), context_per_slot=int(m["ctx"])),
    ),
    rule(": model loaded", rf"{_SRV}model loaded\s*$", lambda _: ModelLoaded()),
    rule(
        "listening on ",
        rf"{_SRV}(?:server is )?listening on (?P<url>(?:https?|unix)://\S+)",
        lambda m: Listening(url=m["url"]),
    ),
)

START_RULES = _MEMORY + _FIT + _FUSED + _SERVER
"""Lines of start-up, the most frequent families first."""
