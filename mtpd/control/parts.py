"""What the control plane works with: the other parts of the daemon, and facts about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mtpd.bus import Bus
    from mtpd.clock import Clock
    from mtpd.config.live import Configuration
    from mtpd.control.choices import Choices
    from mtpd.control.facts import DaemonFacts
    from mtpd.control.history import History
    from mtpd.control.models import ModelReports
    from mtpd.control.quality import QualityDesk
    from mtpd.control.recipes import Recipes
    from mtpd.control.recorder import StoreRecorder
    from mtpd.control.reload import Reloader
    from mtpd.control.tuning import Tuning
    from mtpd.engine.client import EngineClient
    from mtpd.engine.kept import PromptCaches
    from mtpd.gpu.views import DeviceView
    from mtpd.live_views import LiveView
    from mtpd.logfeed import LogFeed
    from mtpd.operations import Operations
    from mtpd.proxy.open_requests import OpenRequests
    from mtpd.proxy.quarantine import Quarantine
    from mtpd.proxy.switch import Switchboard
    from mtpd.store.journal import Journal
    from mtpd.store.samples import Measurements
    from mtpd.views import GateView

__all__ = ["Parts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that the backend of the control API uses.

    Attributes:
        facts: What does not change during one life of the daemon.
        gates: Reads the gates.
        devices: Reads the devices.
        on_switched: Told how a switch ended and how many seconds it took.
        quarantine: Requests that are refused because engines died of them.
        kept: How much of their prompts the engines keep.
        quality: Perplexities, and speeds of the model body alone.
        recipes: Files made smaller.
        live: What live traffic has taught, and what would be done about it.
        feed: The log lines.
        requests: Those that are open.
        history: The last hours.
        degraded: What does not work as it should beside the engines, each with why.
    """

    facts: DaemonFacts
    config: Configuration
    clock: Clock
    bus: Bus
    switchboard: Switchboard[EngineClient]
    operations: Operations
    measurements: Measurements
    journal: Journal
    recorder: StoreRecorder
    choices: Choices
    tuning: Tuning
    reload: Reloader
    reports: ModelReports
    gates: Callable[[], Awaitable[tuple[GateView, ...]]]
    devices: Callable[[], Awaitable[tuple[DeviceView, ...]]]
    on_switched: Callable[[str, float], None]
    kept: PromptCaches
    quarantine: Quarantine
    quality: QualityDesk
    recipes: Recipes
    live: Callable[[], LiveView]
    feed: LogFeed
    requests: OpenRequests
    history: History
    degraded: Callable[[], tuple[str, ...]]
