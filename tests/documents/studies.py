"""What the tuner's formulas say of study 000's cells, for docs/how_it_decides.md."""

from __future__ import annotations

from statistics import fmean

from tests.fakes.study import MATRIX
from tuner.acceptance import expected_tokens
from tuner.cost import breakeven_next, implied_step_ratio
from tuner.throughput import monotone_bound_tps, predict_tps
from tuner.types import Resident

__all__ = ["BLOCKS", "RAW_TPS", "row_costs"]

RAW_TPS = 32.4
"""Study 000, first point: "both 27B models have the same raw speed (32.4 t/s)"."""
DEPTH = 2


def resident() -> dict[str, tuple[float, tuple[float, float]]]:
    """Speed and acceptances of the cells that were wholly on the card."""
    return {
        name: (row.tps, row.alphas)
        for name, row in MATRIX.items()
        if row.alphas is not None and isinstance(row.residency, Resident)
    }


def row_costs() -> dict[str, float]:
    """The row cost c that each of them implies."""
    return {
        name: (implied_step_ratio(RAW_TPS, alphas, tps) - 1) / DEPTH
        for name, (tps, alphas) in resident().items()
    }


def _table(head: str, rows: list[str]) -> str:
    columns = head.count("|") - 1
    return "\n".join([head, "|---" * columns + "|", *rows])


def implied() -> str:
    """E(2), the step that the measured speed implies, and a forecast from the other cells."""
    costs = row_costs()
    rows = []
    for name, (tps, alphas) in resident().items():
        others = fmean(c for other, c in costs.items() if other != name)
        forecast = predict_tps(alphas, 1 / RAW_TPS, others)
        cells = (
            name,
            f"{alphas[0]:.3f}",
            f"{alphas[1]:.3f}",
            f"{expected_tokens(alphas):.3f}",
            f"{tps}",
            f"{implied_step_ratio(RAW_TPS, alphas, tps):.3f}",
            f"{costs[name]:.4f}",
            f"{forecast:.1f} ({forecast / tps - 1:+.1%})",
        )
        rows.append(f"| {' | '.join(cells)} |")
    head = (
        "| model | α₁ | α₂ | E(2) | measured tok/s | so t(2)/t(0) | so c | "
        "forecast by the others' c |"
    )
    return _table(head, rows)


def depths() -> str:
    """tok/s by depth with the mean row cost, and what a third token would need."""
    c = fmean(row_costs().values())
    rows = []
    for name, (_, alphas) in resident().items():
        speeds = [predict_tps(alphas[:k], 1 / RAW_TPS, c) for k in range(DEPTH + 1)]
        bound = monotone_bound_tps(alphas, 1 / RAW_TPS, c, DEPTH + 1)
        needed = breakeven_next(alphas, c)
        cells = " | ".join(f"{speed:.1f}" for speed in speeds)
        rows.append(f"| {name} | {cells} | {bound:.1f} | {needed:.3f} |")
    head = "| model | depth 0 | depth 1 | depth 2 | depth 3 at most | depth 3 pays from α₃ |"
    return _table(head, rows)


BLOCKS = {"studies implied": implied(), "studies depths": depths()}
