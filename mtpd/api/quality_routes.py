"""The rows of the control API about quality and kernel-level speed."""

from __future__ import annotations

from mtpd import quality_views
from mtpd.api import quality_handlers as handlers
from mtpd.api import quality_schema as schema
from mtpd.api.row import PREFIX, Route, reads, starts

__all__ = ["QUALITY"]

QUALITY: tuple[Route, ...] = (
    starts(
        f"{PREFIX}/perplexity",
        handlers.perplexity,
        "Measure the perplexity of a model, or of two and their difference",
        body=schema.PerplexityBody,
    ),
    reads(
        f"{PREFIX}/perplexity",
        handlers.perplexities,
        "Stored perplexities, newest first",
        query=schema.ModelQuery,
        response=[quality_views.PerplexityView],
        member="perplexities",
        refuses=(404,),
    ),
    reads(
        f"{PREFIX}/perplexity/comparison",
        handlers.comparison,
        "A variant's stored perplexity against a base's",
        query=schema.PairQuery,
        response=quality_views.PplComparisonView,
        refuses=(404, 422),
    ),
    starts(
        f"{PREFIX}/bench",
        handlers.bench,
        "Time the model body alone with llama-bench",
        body=schema.BenchBody,
    ),
    reads(
        f"{PREFIX}/bench",
        handlers.baselines,
        "Stored runs of llama-bench, newest first",
        query=schema.ModelQuery,
        response=[quality_views.BaselineView],
        member="baselines",
        refuses=(404,),
    ),
    reads(
        f"{PREFIX}/recipes/b2",
        handlers.recipe_b2,
        "What a smaller output tensor would make of a model's file",
        query=schema.RecipeQuery,
        response=quality_views.RecipeView,
        refuses=(404, 409, 422, 502, 503),
    ),
    starts(
        f"{PREFIX}/recipes/b2",
        handlers.make_b2,
        "Write that file beside the original",
        body=schema.RecipeBody,
    ),
)
