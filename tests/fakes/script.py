"""What the fake llama-server does, as a value: the knobs of the variable FAKE_LLAMA (JSON)."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["VARIABLE", "Device", "Script"]

VARIABLE = "FAKE_LLAMA"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """The card that the fake claims to have."""

    name: str = "ROCm0"
    description: str = "AMD Instinct MI50"
    total_mib: int = 16368
    free_mib: int = 16200
    bus_id: str = "0000:03:00.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Every knob; the defaults make a healthy engine without a device.

    Attributes:
        load_s: Seconds between the start and the readiness.
        load_stall: The load never ends, and logs nothing.
        device: The card, or None for a build for the processor.
        layers: Layers of the model, as `offloaded N/M` counts them (with the output).
        evict_at_depth: From this depth on one layer stays in host memory.
        spill_at_depth: From this depth on a part lies in host memory, and the log is silent.
        spill_mib: How much.
        oom_at_depth: From this depth on device memory runs out during the load.
        oom_below_mib: Only where the card has less than this free; None: always.
        machine: Root of the fake sysfs tree that shows the card's memory, or None.
        keep_vram: The card does not get it back at the end.
        lose_card_at_token: From this token on completions are errors, and health is fine.
        say_lost: Whether the log says that it is lost.
        acceptance: Conditional rate of each draft position; the last one holds for the rest.
        tps0: Tokens per second at depth 0.
        row_cost: c of the step time t0 (1 + c k) with k drafted rows.
        draft_share: Part of c that is the drafting; a draft is made at full depth, then cut.
        reshape_ms: What a decode with other rows than the one before takes more.
        prompt_tps: Prompt tokens per second.
        realtime: Whether a step takes its time; else only the reported times are the model's.
        text: Words to generate, over and over; None makes words from seed and prompt.
        text_changes_at_depth: From this depth on another text comes.
        crash_at_token: The process aborts when it generates this token (counted from 1).
        exit_code_at_start: The process ends so before it listens; negative is a signal.
        say_at_start: Lines written to the log first.
        say_while_loading: Lines written before the memory lines of the load.
        ignore_sigterm: SIGTERM does nothing, ever.
        hang_slots: `/slots` never answers.
        spam_log: Lines of noise written while loading.
        spam_request: Lines of noise written for each request.
        hold_stdout_grandchild: A grandchild keeps stdout and stderr open.
        slow_exit_s: Seconds between the last client and the exit.
        lie_health: `/health` says ok while the model loads.
        no_per_pos_metrics: `/metrics` lacks the counters by position.
        no_spec_metrics: `/metrics` lacks every counter of speculation (before b10434).
        models: Knobs that differ by the model file's stem.
    """

    load_s: float = 0.0
    load_stall: bool = False
    device: Device | None = None
    layers: int = 66
    evict_at_depth: int | None = None
    spill_at_depth: int | None = None
    spill_mib: int = 900
    oom_at_depth: int | None = None
    oom_below_mib: int | None = None
    machine: str | None = None
    keep_vram: bool = False
    lose_card_at_token: int | None = None
    say_lost: bool = True
    acceptance: tuple[float, ...] = (0.9, 0.7)
    tps0: float = 50.0
    row_cost: float = 0.41
    draft_share: float = 0.0
    reshape_ms: float = 0.0
    prompt_tps: float = 1000.0
    realtime: bool = False
    text: str | None = None
    text_changes_at_depth: int | None = None
    crash_at_token: int | None = None
    exit_code_at_start: int | None = None
    say_at_start: tuple[str, ...] = ()
    say_while_loading: tuple[str, ...] = ()
    ignore_sigterm: bool = False
    hang_slots: bool = False
    spam_log: int = 0
    spam_request: int = 0
    hold_stdout_grandchild: bool = False
    slow_exit_s: float = 0.0
    lie_health: bool = False
    no_per_pos_metrics: bool = False
    no_spec_metrics: bool = False
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, *, model: str = "") -> Script:
        """Read the JSON; an unknown knob is a TypeError."""
        knobs: dict[str, Any] = json.loads(text or "{}")
        knobs |= knobs.get("models", {}).get(model, {})
        if isinstance(knobs.get("device"), dict):
            knobs["device"] = Device(**knobs["device"])
        for name in ("acceptance", "say_at_start", "say_while_loading"):
            if name in knobs:
                knobs[name] = tuple(knobs[name])
        return cls(**knobs)

    def dump(self) -> str:
        """The JSON that `parse` reads."""
        return json.dumps(dataclasses.asdict(self))
