"""Which depth of a model to run, and (from ``tuner.pools``) which model of a pool.

Covers the tie rule, the incumbent's right to stay, the refusal of arms that are not proven
to be in device memory, and the one sentence that names the numbers. Does not decide when
to switch a running engine (``tuner.policy``).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.compare import Incomparable
from tuner.cost import CostFit, StepPoint, fit_cost
from tuner.pools import Candidate, Objective, choose_model
from tuner.speed import SpeedComparison, compare_speeds, ratio_text, speed_interval
from tuner.summary import ArmSummary, summarise
from tuner.types import (
    Act,
    Arm,
    Decision,
    Evicted,
    Residency,
    Spilled,
    Unknown,
    depth_order,
    passes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "ArmSummary",
    "Candidate",
    "Objective",
    "choose_depth",
    "choose_model",
    "cost_of",
    "does_not_fit",
    "rejection",
    "summarise",
    "unbeaten",
]

_MISFIT = 0.10
"""Residual of the cost fit from which it is worth a word."""


@dataclass(frozen=True, slots=True)
class _Rival:
    row: ArmSummary
    verdict: SpeedComparison | Incomparable
    """Of the rival against the chosen arm."""


def choose_depth(
    summaries: Sequence[ArmSummary],
    incumbent: Arm | None = None,
    *,
    subject: str | None = None,
    memory_bytes: Mapping[Arm, int] | None = None,
) -> Decision:
    """Choose among the depths of one profile.

    An arm is in the running if its residency passes and no comparable arm beats it (more
    than 2 % faster and the paired interval clear of 1). The incumbent stays if it is in
    the running; otherwise the least memory wins, by default the smallest depth.

    Args:
        summaries: Rows of one profile; their order plays no role.
        incumbent: The arm that runs now, if any.
        subject: What the decision is about; by default the profile.
        memory_bytes: Device memory per arm, where known for all arms in the running.
    """
    rows = sorted(summaries, key=lambda row: depth_order(row.arm))
    if len({row.arm.profile for row in rows}) > 1:
        msg = "choose_depth compares the depths of one profile"
        raise ValueError(msg)
    about = subject or next((row.arm.profile for row in rows), "no arm")
    refused = {row.arm: why for row in rows if (why := rejection(row)) is not None}
    eligible = [row for row in rows if row.arm not in refused]
    evidence = tuple(_evidence(row, refused.get(row.arm)) for row in rows)
    if not eligible:
        return Decision(
            act=Act.REJECT,
            subject=about,
            arm=None,
            previous=incumbent,
            reason=f"no depth of {about} can be chosen: "
            + (_list(_refusals(refused)) or "nothing was measured"),
            evidence=evidence,
        )
    running = unbeaten(eligible)
    chosen = _pick(running, incumbent, memory_bytes or {})
    rivals = [_Rival(row, compare_speeds(row, chosen)) for row in eligible if row.arm != chosen.arm]
    cost = cost_of(eligible)
    return Decision(
        act=_act(chosen.arm, incumbent),
        subject=about,
        arm=chosen.arm,
        previous=incumbent,
        predicted=speed_interval(chosen),
        reason=_sentence(chosen, rivals, cost, _refusals(refused), kept=chosen.arm == incumbent),
        evidence=(*evidence, *_misfits(eligible, cost), *_traps(rivals)),
    )


def rejection(row: ArmSummary) -> str | None:
    """Why an arm must not be chosen, or None; "does not fit" is never "does not pay"."""
    if (misfit := does_not_fit(row.residency)) is not None:
        return misfit
    if row.failure is not None:
        return f"did not start ({row.failure})"
    if isinstance(row.residency, Unknown):
        return f"is not proven to be resident ({row.residency.reason})"
    if row.tps is None:
        return "was not measured"
    return "was measured under several fingerprints" if row.fingerprint is None else None


def does_not_fit(residency: Residency) -> str | None:
    """How an arm misses device memory, or None; unknown is not a misfit."""
    match residency:
        case Evicted(layers=None):
            return "does not fit (layers run on the CPU)"
        case Evicted(layers=layers):
            return f"does not fit ({layers} layer{'' if layers == 1 else 's'} on the CPU)"
        case Spilled():
            return "does not fit (device memory spilled to the host)"
        case _:
            return None


def unbeaten(rows: Sequence[ArmSummary]) -> list[ArmSummary]:
    """The rows that no other comparable row beats; all of them if they beat in a circle."""
    beaten = {
        loser.arm
        for winner, loser in itertools.permutations(rows, 2)
        if isinstance(verdict := compare_speeds(winner, loser), SpeedComparison) and verdict.faster
    }
    return [row for row in rows if row.arm not in beaten] or list(rows)


def cost_of(rows: Sequence[ArmSummary]) -> CostFit | Unknown:
    """Row cost fitted to the step times of the resident rows of one profile."""
    points = [
        StepPoint(depth=row.arm.depth, step_s=row.step_s)
        for row in rows
        if row.step_s is not None and passes(row.residency)
    ]
    return fit_cost(points)


def _pick(
    running: Sequence[ArmSummary], incumbent: Arm | None, memory: Mapping[Arm, int]
) -> ArmSummary:
    for row in running:
        if row.arm == incumbent:
            return row
    if all(row.arm in memory for row in running):
        return min(running, key=lambda row: (memory[row.arm], depth_order(row.arm)))
    return min(running, key=lambda row: depth_order(row.arm))


def _act(arm: Arm, incumbent: Arm | None) -> Act:
    if incumbent is None:
        return Act.CHOOSE
    return Act.KEEP if arm == incumbent else Act.SWITCH


def _sentence(
    chosen: ArmSummary,
    rivals: Sequence[_Rival],
    cost: CostFit | Unknown,
    refusals: Sequence[str],
    *,
    kept: bool,
) -> str:
    tied = [r for r in rivals if not _beaten(r)]
    parts: list[str] = []
    if beaten := [_named(r) for r in rivals if _beaten(r)]:
        parts.append(f"beats {_list(beaten)}")
    if ties := [_named(r) for r in tied if isinstance(r.verdict, SpeedComparison)]:
        parts.append(f"ties with {_list(ties)}")
    if unknown := [_named(r) for r in tied if isinstance(r.verdict, Incomparable)]:
        parts.append(f"cannot be compared with {_list(unknown)}")
    if tied:
        parts.append("stays as the incumbent" if kept else "needs the least memory of these")
    if not rivals:
        parts.append("is the only depth left")
    head = f"{chosen.arm}: {_tps(chosen)} {_list(parts)}"
    economics = _economics(chosen, rivals, cost)
    tail = f"; {_list(list(refusals))}" if refusals else ""
    return f"{head}{economics}{tail}"


def _economics(chosen: ArmSummary, rivals: Sequence[_Rival], cost: CostFit | Unknown) -> str:
    speculative = [r.row for r in rivals if r.row.arm.depth]
    row = chosen
    if chosen.arm.depth == 0:
        if not speculative:
            return ""
        row = max(speculative, key=lambda one: (one.tps or 0.0, depth_order(one.arm)))
    parts: list[str] = []
    if isinstance(cost, CostFit):
        parts.append(f"a verification row costs {cost.c:.2f} of a step here")
    if row.expected is not None:
        parts.append(f"{_alphas(row)} {row.expected:.2f} tokens per step")
    text = f": {', '.join(parts)}" if parts else ""
    if chosen.arm.depth or any(isinstance(r.verdict, Incomparable) for r in rivals):
        return text
    pays = all(_beaten(r) for r in rivals)
    return f"{text} - speculation {'does not pay' if pays else 'earns nothing measurable'} here"


def _alphas(row: ArmSummary) -> str:
    """Subject and verb of what the drafts earn."""
    if isinstance(row.alphas, Unknown):
        return f"depth {row.arm.depth} earns"
    names = [f"alpha{i} {a.mid:.2f}" for i, a in enumerate(row.alphas, start=1)]
    return f"{_list(names)} {'earns' if len(names) == 1 else 'earn'}"


def _beaten(rival: _Rival) -> bool:
    return isinstance(rival.verdict, SpeedComparison) and rival.verdict.slower


def _named(rival: _Rival) -> str:
    verdict = rival.verdict
    if isinstance(verdict, Incomparable):
        return f"depth {rival.row.arm.depth} (other {verdict.trap.value})"
    return f"depth {rival.row.arm.depth} ({ratio_text(verdict)})"


def _refusals(refused: Mapping[Arm, str]) -> list[str]:
    return [f"depth {arm.depth} {why}" for arm, why in refused.items()]


def _tps(row: ArmSummary) -> str:
    value = row.tps or 0.0
    return f"{value:.0f} tok/s" if value >= 100 else f"{value:.1f} tok/s"  # noqa: PLR2004 - digits shown


def _evidence(row: ArmSummary, refused: str | None) -> str:
    parts = [] if refused is None else [refused]
    if row.tps is not None and row.spread is not None:
        parts.append(f"{_tps(row)} over {len(row.cells)} prompts, spread {row.spread:.0%}")
    if row.expected is not None:
        parts.append(f"{row.expected:.2f} tokens per step")
    if not isinstance(row.alphas, Unknown):
        parts += [
            f"alpha{i} {a.mid:.3f} [{a.low:.3f}, {a.high:.3f}]"
            for i, a in enumerate(row.alphas, start=1)
        ]
    if row.outliers:
        parts.append(f"{row.outliers} outlier{'' if row.outliers == 1 else 's'} kept")
    parts += [f"{x.count} left out: {x.reason}" for x in row.excluded]
    return f"{row.arm}: {', '.join(parts)}"


def _misfits(rows: Sequence[ArmSummary], cost: CostFit | Unknown) -> list[str]:
    if isinstance(cost, Unknown):
        return []
    depths = [row.arm.depth for row in rows if row.step_s is not None]
    return [
        f"depth {depth} takes {residual:+.0%} per step against the fitted line: "
        "the row cost is not one number here, or the arm is not really resident"
        for depth, residual in zip(depths, cost.residuals, strict=True)
        if abs(residual) > _MISFIT
    ]


def _traps(rivals: Sequence[_Rival]) -> list[str]:
    return [r.verdict.sentence for r in rivals if isinstance(r.verdict, Incomparable)]


def _list(items: Sequence[str]) -> str:
    if len(items) < 2:  # noqa: PLR2004 - one item needs no "and"
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
