"""What an operation's ``result`` holds once it is done, by its kind: for the description. Pure.

The control plane writes these members; a test holds the results of a running daemon
against them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mtpd.config.diff import Changes  # noqa: TC001  # the schema resolves it
from mtpd.proxy.outcomes import Renewal  # noqa: TC001  # the schema resolves it
from mtpd.quality_views import (  # noqa: TC001  # the schema resolves them
    BaselineView,
    PerplexityView,
    PplComparisonView,
    RecipeView,
)
from mtpd.views import (  # noqa: TC001  # the schema resolves them
    ChoiceView,
    DecisionView,
    DepthRowView,
    EngineView,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RESULTS"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedResult:
    """What a switch or a load came to.

    Attributes:
        decision: Its number in the journal.
        engine: The engine that serves.
        choice: What it is served at, and why.
        prompt_cache: How much of it went with the engine that was stopped; None where none was.
    """

    decision: int
    engine: EngineView
    choice: ChoiceView
    prompt_cache: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadedResult:
    """What an unload left.

    Attributes:
        engines: Every slot.
    """

    engines: tuple[EngineView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredResult:
    """What a tune, a sweep or a probe measured and decided.

    Attributes:
        subject: The pool or model.
        method: model-based, sweep or probe.
        applied: Whether the choice is in force.
        decisions: One per model, the pool's last.
        depths: The rows that were measured.
        not_started: Depths that were not started, with why.
        warnings: What makes the numbers doubtful.
    """

    subject: str
    method: str
    applied: bool
    decisions: tuple[DecisionView, ...]
    depths: tuple[DepthRowView, ...]
    not_started: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadedResult:
    """What reading the configuration again changed.

    Attributes:
        reason: One sentence.
        changes: From the old to the new one.
        warnings: What is odd about it.
        decision: Its number in the journal; None where nothing is different.
        engines: What became of each that ran otherwise.
    """

    reason: str
    changes: Changes
    warnings: tuple[str, ...]
    decision: int | None
    engines: tuple[Renewal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PerplexityResult:
    """Measured perplexities.

    Attributes:
        rows: One per model.
        comparison: Their difference; None for one model.
    """

    rows: tuple[PerplexityView, ...]
    comparison: PplComparisonView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """A run of llama-bench.

    Attributes:
        baseline: The stored run.
    """

    baseline: BaselineView


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeResult:
    """A file that was made; with a text also what a perplexity's result holds.

    Attributes:
        recipe: What it is, and what it is worth.
    """

    recipe: RecipeView


RESULTS: Final[Mapping[str, type]] = {
    "switch": ServedResult,
    "load": ServedResult,
    "unload": UnloadedResult,
    "tune": MeasuredResult,
    "sweep": MeasuredResult,
    "probe": MeasuredResult,
    "reload": ReloadedResult,
    "perplexity": PerplexityResult,
    "bench": BenchResult,
    "recipe": RecipeResult,
}
"""By the kind of the operation."""
