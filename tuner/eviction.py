"""What layers on the CPU cost in speed, and how many layers a lack of memory evicts.

    t(evicted) = t(resident) * (1 + share * layers)

The share belongs to a host, its memory and its link to the card, as the row cost belongs to
a card; one host was measured. Covers the slowdown with its spread. What would bring the
layers back is ``tuner.advisor``.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuner.special import t_quantile
from tuner.types import Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.geometry import Geometry

__all__ = [
    "LAYER_COST_H200",
    "EvictedCell",
    "LayerCost",
    "Slowdown",
    "fewest_layers",
    "fit_layer_cost",
    "slowdown",
]

_LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictedCell:
    """One arm measured with layers on the CPU and with none.

    Attributes:
        layers: Layers on the CPU.
        tps: Tokens per second with them there.
        resident_tps: Tokens per second of the same arm on the device.
    """

    layers: int
    tps: float
    resident_tps: float

    @property
    def share(self) -> float:
        """Cost of one layer as a share of the resident step."""
        return (self.resident_tps / self.tps - 1) / self.layers


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCost:
    """What one layer on the CPU costs.

    Attributes:
        share: Mean cost of a layer as a share of the resident step.
        low: Lower end of the 95 % prediction interval of a further cell's share.
        high: Its upper end.
        source: Where it comes from, for sentences.
    """

    share: float
    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """How much slower a load runs for its evicted layers: predicted, not measured.

    Attributes:
        layers: Layers on the CPU.
        counted: Whether a log counted them; else at least so many have to go.
        factor: Resident tokens per second over the evicted ones.
        source: What the prediction rests on.
    """

    layers: int
    counted: bool
    factor: Interval
    source: str

    def __str__(self) -> str:
        """The prediction with what it is predicted from, one clause."""
        many = f"{self.layers} layer{'' if self.layers == 1 else 's'}"
        least = "" if self.counted else "at least "
        return (
            f"resident it is predicted to run {least}{self.factor.mid:.1f}x as fast "
            f"[{self.factor.low:.1f}x, {self.factor.high:.1f}x] as with {least}{many} on the CPU "
            f"(from {self.source})"
        )


def fit_layer_cost(cells: Sequence[EvictedCell], source: str) -> LayerCost:
    """Layer cost with the prediction interval of a further cell; at least two cells."""
    shares = [cell.share for cell in cells]
    mean, spread = statistics.fmean(shares), statistics.stdev(shares)
    half = t_quantile(_LEVEL, len(shares) - 1) * spread * math.sqrt(1 + 1 / len(shares))
    return LayerCost(share=mean, low=max(mean - half, 0.0), high=mean + half, source=source)


def fewest_layers(geometry: Geometry, missing_bytes: int) -> int:
    """Layers of the trunk that have to leave the device at least for that many bytes.

    By their weights alone. The engine may evict more: 4 where 2 would have been enough for
    depth 3 of the 27B model under the default margin (real_gpu_27b.md).
    """
    return min(geometry.layers, math.ceil(missing_bytes * geometry.layers / geometry.trunk_bytes))


def slowdown(layers: int, cost: LayerCost, *, counted: bool) -> Slowdown:
    """Predict the slowdown of ``layers`` evicted layers."""
    low, mid, high = (1 + share * layers for share in (cost.low, cost.share, cost.high))
    return Slowdown(
        layers=layers,
        counted=counted,
        factor=Interval(low=low, mid=mid, high=high, level=_LEVEL),
        source=cost.source,
    )


LAYER_COST_H200: Final = fit_layer_cost(
    (
        EvictedCell(layers=1, tps=66.65, resident_tps=98.1),
        EvictedCell(layers=4, tps=35.85, resident_tps=98.5),
        EvictedCell(layers=9, tps=17.95, resident_tps=91.8),
        EvictedCell(layers=5, tps=19.6, resident_tps=94.25),
        EvictedCell(layers=7, tps=22.95, resident_tps=95.85),
        EvictedCell(layers=10, tps=13.4, resident_tps=97.95),
        EvictedCell(layers=12, tps=9.0, resident_tps=96.65),
    ),
    "seven evicted cells of a 27B model on one H200 host",
)
"""real_gpu_27b.md, table: the three evicted rows of the 16 GiB card, then the four of the
14.5 GiB card; mean of the two repetitions, the resident rows of the same depth beside them
(of depth 5, whose first repetitions were outliers, the faster one)."""
