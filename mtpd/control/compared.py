"""Stored perplexities as the tuner compares them, and what is said of a pair. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mtpd.quality_views import PplComparisonView
from tuner.compare import Incomparable, PerplexityRun, Quality, chunk_nll, compare_quality

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mtpd.quality_views import PerplexityView
    from tuner.compare import PplComparison

__all__ = ["compare", "newest_pair", "quality_of_row"]

_SAID = {"better": "better", "worse": "worse", "tie": "not told apart"}


def compare(base: PerplexityView, variant: PerplexityView) -> PplComparisonView | Incomparable:
    """The variant against the base, or the trap that forbids it."""
    found = compare_quality(quality_of_row(base), quality_of_row(variant))
    if isinstance(found, Incomparable):
        return found
    paired = len(base.running) == len(variant.running) > 1
    ratio = math.exp(found.delta_log)
    change, error = 100 * (ratio - 1), None if math.isinf(found.se) else 100 * ratio * found.se
    return PplComparisonView(
        base=base,
        variant=variant,
        change_percent=change,
        error_percent=error,
        paired=paired,
        verdict=found.verdict.value,
        reason=_sentence(base, variant, found, change=change, error=error, paired=paired),
    )


def newest_pair(
    bases: Sequence[PerplexityView], variants: Sequence[PerplexityView]
) -> PplComparisonView | Incomparable:
    """The newest comparable pair; the trap of the newest pair where there is none.

    Args:
        bases: Newest first, at least one.
        variants: Likewise.
    """
    pairs = ((base, variant) for variant in variants for base in bases)
    first = compare(bases[0], variants[0])
    if not isinstance(first, Incomparable):
        return first
    compared = (compare(*pair) for pair in pairs)
    return next((one for one in compared if not isinstance(one, Incomparable)), first)


def quality_of_row(view: PerplexityView) -> Quality:
    """A stored perplexity as the tuner compares it."""
    return Quality(
        value=view.perplexity,
        stderr=view.stderr,
        run=PerplexityRun(
            corpus=view.corpus_sha256,
            chunks=view.chunks,
            context=view.context,
            flags=" ".join(view.flags),
        ),
        chunk_nll=chunk_nll(view.running),
    )


def _sentence(
    base: PerplexityView,
    variant: PerplexityView,
    found: PplComparison,
    *,
    change: float,
    error: float | None,
    paired: bool,
) -> str:
    how = f"paired over {base.chunks} chunks" if paired else f"unpaired, {base.chunks} chunks"
    spread = "error unknown" if error is None else f"± {error:.2g} %"
    builds = "" if base.tool_digest == variant.tool_digest else "; two builds measured them"
    return (
        f"{variant.model} has {change:+.1f} % perplexity against {base.model} ({spread}, {how}): "
        f"{_SAID[found.verdict.value]}{builds}"
    )
