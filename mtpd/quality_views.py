"""Measured perplexities, their comparisons and kernel-level speeds, as the API shows them."""

from __future__ import annotations

from dataclasses import dataclass

from mtpd.memory_views import DepthMemoryView  # noqa: TC001  # decoders resolve it

__all__ = [
    "BaselineView",
    "BenchRowView",
    "PerplexityView",
    "PplComparisonView",
    "RecipeDepthView",
    "RecipeView",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PerplexityView:
    """One perplexity that llama-perplexity measured.

    Attributes:
        file: The model file.
        sha256: Of the whole file; None where it was not known yet.
        stderr: Standard error as the tool prints it; None with ``note`` saying why.
        corpus: The text's file name.
        corpus_sha256: Of its bytes: what makes two texts the same.
        chunks: How many were measured; a short text has fewer than were asked for.
        context: Tokens per chunk.
        flags: What else the tool was told that changes the result.
        tool_digest: SHA-256 over the tool and its libraries.
        running: Perplexity over all chunks so far, after each chunk.
        note: What is unusual about it, or "".
    """

    id: int
    at: str
    operation_id: str | None
    model: str
    file: str
    sha256: str | None
    perplexity: float
    stderr: float | None
    corpus: str
    corpus_sha256: str
    chunks: int
    context: int
    flags: tuple[str, ...]
    tool_digest: str
    running: tuple[float, ...]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PplComparisonView:
    """A variant's perplexity against a base's.

    Attributes:
        change_percent: How much the variant's is higher.
        error_percent: Standard error of that; None where nothing says it.
        paired: Whether it is the mean over chunks of both, which share a text.
        verdict: better, worse or tie.
        reason: One sentence.
    """

    base: PerplexityView
    variant: PerplexityView
    change_percent: float
    error_percent: float | None
    paired: bool
    verdict: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRowView:
    """One test of llama-bench; see ``mtpd.engine.tool_output.BenchRow``."""

    name: str
    prompt_tokens: int
    gen_tokens: int
    depth: int
    tps: float
    tps_sd: float | None
    samples: tuple[float, ...]
    build: str
    backends: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineView:
    """One run of llama-bench: the model body alone, without server, slots and drafts."""

    id: int
    at: str
    operation_id: str | None
    model: str
    file: str
    flags: tuple[str, ...]
    tool_digest: str
    rows: tuple[BenchRowView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeDepthView:
    """One depth's device memory with the file as it is, and with the recipe's."""

    before: DepthMemoryView
    after: DepthMemoryView


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeView:
    """What a recipe would make of a model file, and what that is worth.

    Attributes:
        output: The new file, beside the original.
        tensor: The one tensor that changes.
        before_type: Its type now.
        after_type: Its type in the new file.
        gained_bytes: What the new file is smaller by.
        size_bytes: Predicted size of the new file.
        free_bytes: Free on the file system of the new file; None where it cannot be read.
        depths: Whether the model stays on the device, shallow to deep.
        command: What makes the file, for a shell.
        forbids: Comparisons that the new file must not enter.
        reason: One sentence.
    """

    recipe: str
    model: str
    file: str
    output: str
    tensor: str
    before_type: str
    after_type: str
    gained_bytes: int
    size_bytes: int
    free_bytes: int | None
    depths: tuple[RecipeDepthView, ...]
    command: str
    forbids: tuple[str, ...]
    reason: str
