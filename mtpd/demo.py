"""The demo: a real daemon with two tiny models, tuned on this machine, then serving.

Covers what is measured and what is reported. It is the daemon of ``mtpd serve`` with a
configuration of its own and temporary directories; nothing here is a shortcut past it.
"""

from __future__ import annotations

import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from mtpd.app import daemon
from mtpd.config.directories import Directories
from mtpd.config.load import load
from mtpd.errors import CalibrationError
from mtpd.events import OperationChanged
from mtpd.views import DecisionView, IntervalView, ModelView  # the schema resolves them
from tuner.throughput import forecast_ratios
from tuner.types import Interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.app import Daemon
    from mtpd.config.model import HardwareProfile
    from mtpd.views import (
        DepthRowView,
        OperationView,
        ProgressView,
    )

__all__ = ["Demo", "Forecast", "Report", "run_demo"]

POOL = "demo"
MODELS = ("tiny-chained", "tiny-unchained")
HARDWARE = "gfx906-16g-150w"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What the demo measures.

    Attributes:
        port: Data plane port; 0 picks a free one.
        threads: Engine threads.
        depths: Draft depths per model.
        workloads: Workload kinds.
        prompts: Prompts per workload.
        repetitions: Runs of each prompt.
        max_tokens: Tokens per run.
    """

    port: int = 8080
    threads: int = 1
    depths: tuple[int, ...] = (0, 1, 2, 3)
    workloads: tuple[str, ...] = ("short", "prose")
    prompts: int = 2
    repetitions: int = 3
    max_tokens: int = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the measured acceptance would earn on a known card: a ratio, never tok/s.

    Attributes:
        model: The model whose acceptance was measured here.
        hardware: The hardware profile.
        row_cost: Its cost of a verification row, as a share of a step.
        source: Where that comes from.
        ratios: Speed relative to depth 0, for depth 0, 1, ...
        best_depth: The depth with the largest ratio.
    """

    model: str
    hardware: str
    row_cost: float
    source: str
    ratios: tuple[IntervalView, ...]
    best_depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of the demo.

    Attributes:
        url: Where it serves.
        control_socket: Where mtpctl finds it.
        engine: Which engine was measured.
        threads: Engine threads.
        models: Both models with their depth rows.
        decisions: One per model, then the pool's.
        forecast: Per model, on the hardware profile.
        seconds: From the start of the daemon to the choice.
        warnings: What makes the speeds doubtful.
    """

    url: str
    control_socket: str
    engine: str
    threads: int
    models: tuple[ModelView, ...]
    decisions: tuple[DecisionView, ...]
    forecast: tuple[Forecast, ...]
    seconds: float
    warnings: tuple[str, ...]


async def run_demo(
    wanted: Demo,
    *,
    path_env: str,
    on_progress: Callable[[ProgressView], None],
    on_report: Callable[[Report], None],
    stay: bool,
) -> None:
    """Measure, choose, report; then serve until told to stop, if ``stay``.

    Raises:
        CalibrationError: The measurement ended without a choice.
        MtpdError: The port is taken, or there is no engine.
    """
    overrides = {
        "server.listen": f"127.0.0.1:{wanted.port}",
        "engine.binary": "embedded",
        "engine.threads": wanted.threads,
        f"pools.{POOL}.members": list(MODELS),
    }
    config = load(None, overrides=overrides)
    hardware = load(None, overrides={"budget.hardware": HARDWARE}).hardware
    with tempfile.TemporaryDirectory(prefix="mtpd-demo-") as folder:
        root = Path(folder)
        directories = Directories(state=root / "state", runtime=root / "run", cache=root / "cache")
        async with daemon(config, directories, path_env=path_env) as running:
            warnings = await _tune(running, wanted, on_progress)
            on_report(await _report(running, wanted, hardware, warnings))
            if stay:
                with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                    await anext(signals)


async def _tune(
    running: Daemon, wanted: Demo, on_progress: Callable[[ProgressView], None]
) -> tuple[str, ...]:
    """Measure and choose; returns what makes the speeds doubtful."""
    operation = await running.control.tune(
        subject=POOL,
        method="sweep",
        depths=wanted.depths,
        workloads=wanted.workloads,
        prompts=wanted.prompts,
        repetitions=wanted.repetitions,
        max_tokens=wanted.max_tokens,
        apply=True,
        idempotency_key=None,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_watch, running, operation.id, on_progress)
        ended = await running.operations.ended(operation.id)
        tasks.cancel_scope.cancel()
    if ended is None or ended.state != "done" or ended.result is None:
        raise _failure(ended)
    warnings = ended.result["warnings"]
    return tuple(str(w) for w in warnings) if isinstance(warnings, list) else ()


def _failure(ended: OperationView | None) -> CalibrationError:
    problem = (ended.error if ended else None) or {}
    detail, hint = problem.get("detail"), problem.get("hint")
    return CalibrationError(
        str(detail or "the measurement was cancelled"), hint=str(hint) if hint else None
    )


async def _watch(
    running: Daemon, operation_id: str, on_progress: Callable[[ProgressView], None]
) -> None:
    async with running.control.subscribe((running.bus.boot, 0)) as events:
        async for envelope in events:
            event = getattr(envelope, "event", None)
            if isinstance(event, OperationChanged) and event.operation.id == operation_id:
                on_progress(event.operation.progress)


async def _report(
    running: Daemon, wanted: Demo, hardware: HardwareProfile | None, warnings: tuple[str, ...]
) -> Report:
    status = await running.control.status()
    models = tuple(m for m in await running.control.models() if m.id in MODELS)
    decisions = (await running.control.decisions(subject=None, limit=100))[::-1]
    return Report(
        url=running.url,
        control_socket=str(running.control_socket),
        engine=status.engine_binary,
        threads=wanted.threads,
        models=models,
        decisions=decisions,
        forecast=tuple(f for m in models if (f := _forecast(m, hardware)) is not None),
        seconds=status.uptime_s,
        warnings=warnings,
    )


def _forecast(model: ModelView, hardware: HardwareProfile | None) -> Forecast | None:
    """Forecast from the deepest row, whose steps show every position."""
    deepest = max(model.depths, key=_positions, default=None)
    if deepest is None or not deepest.acceptance or hardware is None or hardware.row_cost is None:
        return None
    alphas = [
        Interval(low=a.alpha.low, mid=a.alpha.mid, high=a.alpha.high, level=a.alpha.level)
        for a in deepest.acceptance
    ]
    ratios = forecast_ratios(alphas, hardware.row_cost)
    shown = tuple(IntervalView.of(r.ratio) for r in ratios)
    return Forecast(
        model=model.id,
        hardware=hardware.name,
        row_cost=hardware.row_cost,
        source=hardware.row_cost_source or "not said",
        ratios=shown,
        best_depth=max(ratios, key=lambda r: r.ratio.mid).depth,
    )


def _positions(row: DepthRowView) -> int:
    return len(row.acceptance)
