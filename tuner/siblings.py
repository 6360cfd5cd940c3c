"""What the measured siblings of a model imply for it, to decide whether to measure it (R5).

A recipe's price in perplexity (abliteration, a quantization step) measured between two
files is carried over to a third. That is an inference and never a measurement: it names
a model worth measuring, it chooses none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.compare import Incomparable, Quality, comparable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Inferred", "Pair", "infer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two files that differ in one property.

    Attributes:
        without: The file without it.
        having: The file that has it.
        source: Names of the two, for the sentence.
    """

    without: Quality
    having: Quality
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """An unmeasured model and what its siblings imply.

    Attributes:
        name: The model.
        low: Lowest implied perplexity.
        high: Highest implied perplexity; not an error bar, but the spread of the pairs.
        source: What it was inferred from.
        tags: What the model offers.
    """

    name: str
    low: float
    high: float
    source: str
    tags: frozenset[str] = frozenset()

    def __str__(self) -> str:
        """The offer, one clause."""
        return (
            f"{self.name} is unmeasured, measure first: a perplexity of {self.low:.2f} to "
            f"{self.high:.2f} follows from {self.source} (R5)"
        )


def infer(
    name: str,
    known: Quality,
    known_name: str,
    pairs: Sequence[Pair],
    *,
    tags: frozenset[str] = frozenset(),
) -> Inferred | Incomparable:
    """Perplexity of ``known`` without the property that the pairs measure.

    Args:
        name: The unmeasured model.
        known: The same file with the property.
        known_name: Its name.
        pairs: At least one pair that differs in the property alone.
        tags: What the unmeasured model offers.

    Returns:
        The implied range; Incomparable if any two perplexities do not belong together.
    """
    implied: list[float] = []
    for pair in pairs:
        for other in (pair.without, pair.having):
            verdict = comparable(known.run, other.run)
            if isinstance(verdict, Incomparable):
                return verdict
        implied.append(known.value * pair.without.value / pair.having.value)
    return Inferred(
        name=name,
        low=min(implied),
        high=max(implied),
        source=f"{known_name} ({known.value:g}) and {' and '.join(p.source for p in pairs)}",
        tags=tags,
    )
