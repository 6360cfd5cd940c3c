"""What the routes about quality and kernel-level speed take."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from mtpd.api.schema import Body, LimitQuery, Name, Query

__all__ = [
    "BenchBody",
    "ModelQuery",
    "PairQuery",
    "PerplexityBody",
    "RecipeBody",
    "RecipeQuery",
]

Corpus = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^/[^\x00-\x1f]*$")]
Chunks = Annotated[int, Field(ge=1, le=100000)]
ChunkContext = Annotated[int, Field(ge=32, le=1048576)]


class RecipeBody(Body):
    """Make a recipe's file; with a text, measure its perplexity and the original's.

    Attributes:
        model: Name or alias.
        corpus: Whole path of a text on the daemon's machine; without it nothing is measured.
        chunks: At most so many are measured.
        context: Tokens per chunk.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "qwen"}]})

    model: Name
    corpus: Corpus | None = None
    chunks: Chunks = 32
    context: ChunkContext = 512


class PerplexityBody(Body):
    """Measure the perplexity of a model, or of a base and its variant, over one text.

    Attributes:
        models: One, or a base and its variant.
        corpus: Whole path of a text on the daemon's machine.
        chunks: At most so many are measured; only equal counts compare.
        context: Tokens per chunk.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"models": ["qwen"], "corpus": "/srv/texts/wiki.test.raw"}]}
    )

    models: Annotated[tuple[Name, ...], Field(min_length=1, max_length=2)]
    corpus: Corpus
    chunks: Chunks = 32
    context: ChunkContext = 512


_NOTHING_TIMED: dict[str, Any] = {
    "required": ["prompt_tokens", "gen_tokens"],
    "properties": {"prompt_tokens": {"const": 0}, "gen_tokens": {"const": 0}},
}


class BenchBody(Body):
    """Time the model body alone; 0 leaves prompt processing or generation out.

    Attributes:
        model: Name or alias.
        prompt_tokens: Tokens of the prompt that is processed; 0 leaves it out.
        gen_tokens: Tokens that are generated; 0 leaves it out.
        repetitions: Of each test.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "qwen"}], "not": _NOTHING_TIMED}
    )

    model: Name
    prompt_tokens: Annotated[int, Field(ge=0, le=1048576)] = 512
    gen_tokens: Annotated[int, Field(ge=0, le=65536)] = 128
    repetitions: Annotated[int, Field(ge=1, le=100)] = 5

    @model_validator(mode="after")
    def _something(self) -> BenchBody:
        if self.prompt_tokens + self.gen_tokens == 0:
            raise ValueError("prompt_tokens and gen_tokens are both 0: nothing is timed")
        return self


class ModelQuery(LimitQuery):
    """Of which model to list rows.

    Attributes:
        model: Name or alias; without it of all.
        limit: Rows at most.
    """

    model: Name | None = None


class RecipeQuery(Query):
    """For which model to plan.

    Attributes:
        model: Name or alias.
    """

    model: Name


class PairQuery(Query):
    """Which two models to compare.

    Attributes:
        base: Name or alias.
        variant: Name or alias.
    """

    base: Name
    variant: Name
