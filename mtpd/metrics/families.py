"""Families of samples by their names in the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from mtpd.metrics.catalogue import METRICS, Kind, family_name

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Families"]


class Families:
    """Gauges, counters and state sets that one scrape fills."""

    def __init__(self) -> None:
        self._made: dict[str, Metric] = {}

    def add(self, name: str, value: float | None, *labels: str) -> None:
        """Add a sample; None is unknown and has none."""
        if value is None:
            return
        spec = METRICS[name]
        if name not in self._made:
            kind = spec.kind.value if spec.kind in {Kind.COUNTER, Kind.INFO} else "gauge"
            self._made[name] = Metric(family_name(spec), spec.says, kind)
        self._made[name].add_sample(name, dict(zip(spec.labels, labels, strict=True)), value)

    def say(self, name: str, *labels: str, yes: bool) -> None:
        """Add 1 for yes and 0 for no."""
        self.add(name, float(yes), *labels)

    def state(self, name: str, word: str, *labels: str) -> None:
        """Add a whole state set; a word that it does not know is one more state."""
        words = METRICS[name].words
        for one in (*words, *(() if word in words else (word,))):
            self.add(name, float(one == word), *labels, one)

    def info(self, name: str, *labels: str) -> None:
        """Add what something is."""
        self.add(name, 1, *labels)

    def __iter__(self) -> Iterator[Metric]:
        """One family after another; one without a sample does not exist."""
        yield from self._made.values()
