"""The fake engine's arithmetic: drawn acceptance, model times, counters. Pure."""

from __future__ import annotations

import hashlib
import itertools
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fakes.script import Script

__all__ = ["Request", "Spec", "Step", "Totals", "steps", "words"]

CHANGED_FROM = 5
"""From this token on the text differs when `text_changes_at_depth` asks for it."""

SYLLABLES = ("ka", "lo", "mi", "tu", "re", "so", "na", "vi", "pe", "du")


@dataclass(frozen=True, slots=True)
class Spec:
    """How this process speculates; depth 0 is not at all."""

    depth: int = 0
    synthetic: tuple[float, ...] = ()

    def conditional(self, script: Script, position: int) -> float:
        """Chance that a draft position holds, given that all before it did."""
        if self.synthetic:
            before = self.synthetic[position - 1] if position else 1.0
            return self.synthetic[position] / before if before else 0.0
        return script.acceptance[min(position, len(script.acceptance) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one generation needs to know.

    Attributes:
        made: Tokens of this prompt's own text that follow it in the request.
        reuse: Whether cached tokens may be.
    """

    prompt: str
    seed: int
    limit: int
    made: int = 0
    reuse: bool = True

    @property
    def prompt_tokens(self) -> int:
        """One token a word, and what was made before."""
        return max(1, len(self.prompt.split())) + self.made


@dataclass(frozen=True, slots=True)
class Step:
    """One decode: how many rows were drafted, how many of them held, its time."""

    tokens: tuple[str, ...]
    drafted: int
    accepted: int
    ms: float


def steps(script: Script, spec: Spec, request: Request) -> Iterator[Step]:
    """The prompt's own step with the first token, then one step per verification."""
    text = words(script, spec, request)
    yield Step((next(text),), 0, 0, 0.0)
    made, rows = 1, 0
    draw = _random(request, f"acceptance{request.made or ''}")
    while made < request.limit:
        # The engine never drafts beyond the limit (llama_server.md, section 2).
        drafted = min(spec.depth, request.limit - made - 1)
        accepted = 0
        while accepted < drafted and draw.random() < spec.conditional(script, accepted):
            accepted += 1
        made += accepted + 1
        ms = _step_ms(script, spec, drafted) + (script.reshape_ms if drafted != rows else 0.0)
        rows = drafted
        yield Step(tuple(next(text) for _ in range(accepted + 1)), drafted, accepted, ms)


def _step_ms(script: Script, spec: Spec, drafted: int) -> float:
    """A step of so many rows; a draft costs its full depth, however much of it is verified."""
    draft = script.draft_share * (spec.depth if drafted else 0)
    rows = (1.0 - script.draft_share) * drafted + draft
    return 1000.0 / script.tps0 * (1.0 + script.row_cost * rows)


def words(script: Script, spec: Spec, request: Request) -> Iterator[str]:
    """The text without an end, one token at a time, from where the request goes on."""
    return itertools.islice(_words(script, spec, request), request.made, None)


def _words(script: Script, spec: Spec, request: Request) -> Iterator[str]:
    changed = (
        script.text_changes_at_depth is not None and spec.depth >= script.text_changes_at_depth
    )
    source = _random(request, "text")
    fixed = script.text.split() if script.text else None
    number = 0
    while True:
        made = "".join(source.choices(SYLLABLES, k=2))
        word = fixed[number % len(fixed)] if fixed else made
        if changed and number >= CHANGED_FROM:
            word = word[::-1].upper()
        yield word if number == 0 else f" {word}"
        number += 1


def _random(request: Request, purpose: str) -> random.Random:
    digest = hashlib.sha256(f"{purpose}\0{request.seed}\0{request.prompt}".encode()).digest()
    return random.Random(digest)  # noqa: S311 - a test's reproducible draw


@dataclass(slots=True)
class Totals:
    """Sums over steps: of one request, or of the process once requests have ended."""

    requests: int = 0
    cache_n: int = 0
    prompt_n: int = 0
    prompt_ms: float = 0.0
    predicted_n: int = 0
    predicted_ms: float = 0.0
    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    per_position: list[int] = field(default_factory=list)

    def add_step(self, step: Step, depth: int) -> None:
        """Count one decode."""
        self.predicted_n += len(step.tokens)
        self.predicted_ms += step.ms
        self.per_position += [0] * (depth - len(self.per_position))
        if step.drafted:
            self.drafts += 1
            self.drafted += step.drafted
            self.accepted += step.accepted
            for position in range(step.accepted):
                self.per_position[position] += 1

    def add(self, other: Totals) -> None:
        """Count a request that has ended."""
        self.requests += 1
        self.cache_n += other.cache_n
        self.prompt_n += other.prompt_n
        self.prompt_ms += other.prompt_ms
        self.predicted_n += other.predicted_n
        self.predicted_ms += other.predicted_ms
        self.drafts += other.drafts
        self.drafted += other.drafted
        self.accepted += other.accepted
        self.per_position += [0] * (len(other.per_position) - len(self.per_position))
        for position, count in enumerate(other.per_position):
            self.per_position[position] += count

    def timings(self) -> dict[str, float]:
        """The reply's field of that name; the draft counts are absent without drafts."""
        made = max(1, self.predicted_n - 1)
        found: dict[str, float] = {
            "cache_n": self.cache_n,
            "prompt_n": self.prompt_n,
            "prompt_ms": self.prompt_ms,
            "prompt_per_token_ms": self.prompt_ms / max(1, self.prompt_n),
            "prompt_per_second": 1000.0 * self.prompt_n / self.prompt_ms,
            "predicted_n": self.predicted_n,
            "predicted_ms": self.predicted_ms,
            "predicted_per_token_ms": self.predicted_ms / made,
            "predicted_per_second": 1000.0 * made / self.predicted_ms if self.predicted_ms else 0.0,
        }
        if self.drafted:
            found |= {"draft_n": self.drafted, "draft_n_accepted": self.accepted}
        return found
