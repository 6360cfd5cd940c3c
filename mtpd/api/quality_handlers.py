"""What the routes about quality and kernel-level speed ask of the backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mtpd.api.backend import Backend
    from mtpd.api.quality_schema import (
        BenchBody,
        ModelQuery,
        PairQuery,
        PerplexityBody,
        RecipeBody,
        RecipeQuery,
    )
    from mtpd.quality_views import BaselineView, PerplexityView, PplComparisonView, RecipeView
    from mtpd.views import OperationView


async def perplexity(backend: Backend, body: PerplexityBody, key: str | None) -> OperationView:
    """Measure a perplexity, or two and their difference."""
    return await backend.perplexity(
        models=body.models,
        corpus=body.corpus,
        chunks=body.chunks,
        context=body.context,
        idempotency_key=key,
    )


async def perplexities(
    backend: Backend, query: ModelQuery, _id: str
) -> dict[str, tuple[PerplexityView, ...]]:
    """Stored perplexities, newest first."""
    return {"perplexities": await backend.perplexities(model=query.model, limit=query.limit)}


async def comparison(backend: Backend, query: PairQuery, _id: str) -> PplComparisonView:
    """A variant's stored perplexity against a base's."""
    return await backend.comparison(query.base, query.variant)


async def bench(backend: Backend, body: BenchBody, key: str | None) -> OperationView:
    """Time the model body alone."""
    return await backend.bench(
        model=body.model,
        prompt_tokens=body.prompt_tokens,
        gen_tokens=body.gen_tokens,
        repetitions=body.repetitions,
        idempotency_key=key,
    )


async def baselines(
    backend: Backend, query: ModelQuery, _id: str
) -> dict[str, tuple[BaselineView, ...]]:
    """Stored runs of llama-bench, newest first."""
    return {"baselines": await backend.baselines(model=query.model, limit=query.limit)}


async def recipe_b2(backend: Backend, query: RecipeQuery, _id: str) -> RecipeView:
    """What the recipe would do."""
    return await backend.recipe_b2(query.model)


async def make_b2(backend: Backend, body: RecipeBody, key: str | None) -> OperationView:
    """Make the file."""
    return await backend.make_b2(
        model=body.model,
        corpus=body.corpus,
        chunks=body.chunks,
        context=body.context,
        idempotency_key=key,
    )
