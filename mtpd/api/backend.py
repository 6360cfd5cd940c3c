"""What the control API needs of the daemon behind it.

``mtpd.control`` provides it; the tests have a scripted one. Methods refuse with
``NotFoundError``, ``ConflictError`` or ``InvalidError`` of ``mtpd.errors``, whose
sentence and hint reach the client as they are.

Results of operations: switch and load hold ``decision`` (its number), ``engine``, ``choice``
and ``prompt_cache``, a sentence on how much of it went with the engine that was stopped;
unload holds ``engines``, every slot; tune, sweep and probe hold ``subject``,
``method``, ``applied``, ``decisions`` and ``depths``, the rows that were measured; reload
holds ``reason``, ``changes``, ``warnings``, ``decision`` and ``engines``, what became of
each that ran otherwise; perplexity holds ``rows`` and ``comparison`` (null for one model);
bench holds ``baseline``;
recipe holds ``recipe``, and with a text what perplexity holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractAsyncContextManager

    from mtpd.api.filters import Position
    from mtpd.bus import SubscriberDropped
    from mtpd.events import Envelope
    from mtpd.explanation_views import ExplanationView
    from mtpd.gpu.views import DeviceView
    from mtpd.history_views import HistoryView
    from mtpd.live_views import LiveView
    from mtpd.logfeed import LogFeed
    from mtpd.quality_views import BaselineView, PerplexityView, PplComparisonView, RecipeView
    from mtpd.report_views import ReportView
    from mtpd.views import (
        ConfigValueView,
        DecisionView,
        MeasurementView,
        ModelView,
        OperationView,
        QuarantineView,
        StatusView,
    )

__all__ = ["Backend"]


class Backend(Protocol):
    """The daemon, as the control API sees it."""

    async def status(self) -> StatusView:
        """The daemon on one screen."""

    async def gpu(self) -> tuple[DeviceView, ...]:
        """Every device with a fresh reading, and who answers for each field."""

    def live(self) -> LiveView:
        """Live traffic by class, and what the daemon would do by itself."""

    def history(
        self, metrics: AbstractSet[str] | None, /, *, since_s: float, step_s: float
    ) -> HistoryView:
        """What was seen since some seconds ago; None for every metric."""

    async def models(self) -> tuple[ModelView, ...]:
        """Every profile, in the order of the configuration."""

    async def model(self, name: str) -> ModelView | None:
        """One profile by name or alias."""

    async def switch(
        self,
        *,
        model: str,
        depth: int | None,
        force: bool,
        idempotency_key: str | None,
        measured: bool = False,
    ) -> OperationView:
        """Begin to serve a model; None means the depth at which it is served now.

        ``force`` cuts running requests instead of draining them, and serves an arm that
        does not fit. ``measured`` goes back to the measured choice from the depth that an
        operator set.
        """

    async def load(self, *, model: str, idempotency_key: str | None) -> OperationView:
        """Begin to start a model's engine at its chosen depth."""

    async def unload(self, *, model: str | None, idempotency_key: str | None) -> OperationView:
        """Begin to stop a model's engine; None means every engine."""

    async def tune(
        self,
        *,
        subject: str,
        method: str,
        depths: tuple[int, ...] | None,
        workloads: tuple[str, ...] | None,
        prompts: int | None,
        repetitions: int | None,
        max_tokens: int | None,
        apply: bool,
        idempotency_key: str | None,
        max_starts: int | None = None,
        max_cells: int | None = None,
        max_minutes: float | None = None,
        max_joules: float | None = None,
    ) -> OperationView:
        """Begin to measure a pool or model ("sweep" or "model-based"); None means the default.

        The limits are for the whole operation; reaching one ends it with a choice among
        what was measured.
        """

    async def probe(self, *, model: str, depth: int, idempotency_key: str | None) -> OperationView:
        """Begin to measure the acceptance of each draft position up to ``depth``."""

    async def perplexity(
        self,
        *,
        models: tuple[str, ...],
        corpus: str,
        chunks: int,
        context: int,
        idempotency_key: str | None,
    ) -> OperationView:
        """Begin to measure the perplexity of a model, or of a base and its variant."""

    async def bench(
        self,
        *,
        model: str,
        prompt_tokens: int,
        gen_tokens: int,
        repetitions: int,
        idempotency_key: str | None,
    ) -> OperationView:
        """Begin to time the model body alone with llama-bench."""

    async def recipe_b2(self, model: str, /) -> RecipeView:
        """What requantizing the output tensor would make of a model's file."""

    async def make_b2(
        self,
        *,
        model: str,
        corpus: str | None,
        chunks: int,
        context: int,
        idempotency_key: str | None,
    ) -> OperationView:
        """Begin to write that file beside the original; with a text, measure both."""

    async def perplexities(self, *, model: str | None, limit: int) -> tuple[PerplexityView, ...]:
        """Newest first: of a model's file as it lies there now; None for every row."""

    async def baselines(self, *, model: str | None, limit: int) -> tuple[BaselineView, ...]:
        """Likewise of llama-bench."""

    async def comparison(self, base: str, variant: str, /) -> PplComparisonView:
        """The newest comparable pair of stored perplexities.

        Raises:
            InvalidError: One was not measured, or they must not be compared.
        """

    async def reload(self, *, idempotency_key: str | None) -> OperationView:
        """Begin to apply the configuration as it lies on the disk.

        Raises:
            ConfigError: It has errors; nothing was changed.
        """

    def quarantine(self) -> tuple[QuarantineView, ...]:
        """Requests that are refused because engines died of them."""

    async def release(self, quarantined_id: str, /) -> QuarantineView:
        """Let one of them try again; NotFoundError where there is none with this id."""

    async def operations(self, limit: int) -> tuple[OperationView, ...]:
        """Newest first."""

    async def operation(self, operation_id: str, /) -> OperationView | None:
        """One operation."""

    async def cancel(self, operation_id: str, /) -> OperationView | None:
        """Ask an operation to end; one that has ended is returned as it is."""

    async def measurements(
        self,
        *,
        model: str | None,
        depth: int | None,
        workload: str | None,
        operation_id: str | None,
        ids: tuple[int, ...] | None,
        limit: int,
    ) -> tuple[MeasurementView, ...]:
        """Newest first; None does not restrict."""

    async def decisions(self, *, subject: str | None, limit: int) -> tuple[DecisionView, ...]:
        """Newest first."""

    async def decision(self, decision_id: int, /) -> DecisionView | None:
        """One decision."""

    async def explain(self, decision_id: int | None, subject: str | None, /) -> ExplanationView:
        """A decision by number, else the latest of a subject, else the latest of all.

        Raises:
            NotFoundError: No decision fits.
        """

    async def report(self, subject: str | None, /) -> ReportView:
        """Everything that was measured of a pool, a model, or all models.

        Raises:
            UnknownNameError: Nothing has this name.
        """

    def feed(self) -> LogFeed:
        """The latest log lines of the daemon and its engines, and those that come."""

    def position(self) -> Position:
        """The last event that was published; sequence 0 before the first."""

    def subscribe(
        self, after: Position | None
    ) -> AbstractAsyncContextManager[AsyncIterator[Envelope | SubscriberDropped]]:
        """Events after a position of this boot, as far as they are kept; None means from now on.

        A reader that is too slow gets ``SubscriberDropped`` and the iterator ends.
        """

    def stalled(self) -> None:
        """Count a reader of a stream that took nothing and was disconnected."""

    def config(self) -> tuple[ConfigValueView, ...]:
        """Every configuration value and where it comes from."""
