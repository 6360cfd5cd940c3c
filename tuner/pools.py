"""Which model of a pool to serve: named rules over measured rows.

Covers comparable perplexities and the objectives balanced, speed, quality and efficiency; the
hard requirements are ``tuner.candidates``. A row that lacks a number is never guessed. Does
not choose depths: a model comes with its tuned arm.

Rules, as named in the reasons (TUNER 3.8):
    R0: perplexities are compared only over equal corpus, chunk count and context.
    R1: required tags, proven residency unless offload is accepted, context, speed floor,
        and a perplexity within the bound of the best.
    R2 balanced: of the rows not significantly worse than the best perplexity, the fastest.
    R2 speed: the fastest.
    R2 efficiency: of the rows that "R2 balanced" compares, those with at least 80 % of the
        fastest one's speed; of these the most tokens per joule. If the energy of one of them
        is not known, "R2 balanced" decides and says so.
    R3 quality: the lowest perplexity.
    R4: a model has its tuned depth; what was not measured is not guessed.
    R5: what measured siblings imply of an unmeasured model is a reason to measure it.
    Tie: within 2 % tok/s or tok/J (or an interval of the ratio that contains 1) the incumbent
    stays; without one the lower perplexity, then the least memory.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tuner.candidates import (
    Candidate,
    Objective,
    Requirements,
    numbers,
    residency_text,
    unfit,
)
from tuner.compare import (
    Incomparable,
    Perplexity,
    PerplexityRun,
    PplComparison,
    Quality,
    comparable,
    compare_quality,
)
from tuner.speed import (
    TIE_RATIO,
    SpeedComparison,
    assumed_interval,
    compare_speeds,
    ratio_text,
    speed_interval,
)
from tuner.types import Act, Arm, Decision, Interval, Unknown, depth_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.siblings import Inferred

__all__ = ["NOISE_HIDES", "Candidate", "Objective", "choose_model"]

NOISE_HIDES = "the noise hides whether"
"""How the evidence begins that says which models the measurements do not tell apart."""


EFFICIENT_SHARE = 0.8
"""Least share of the fastest model's speed that "R2 efficiency" gives up energy for."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a rule left in the running; ``hidden`` may be faster, as far as the noise lets see."""

    rule: str
    chosen: Candidate
    clause: str
    hidden: tuple[str, ...] = ()


def choose_model(
    candidates: Sequence[Candidate],
    *,
    objective: Objective = Objective.BALANCED,
    incumbent: Arm | None = None,
    subject: str = "pool",
    require: frozenset[str] = frozenset(),
    accept_offload: bool = False,
    floor_tps: float = 0.0,
    least_context_tokens: int = 0,
    quality_bound: float | None = None,
    rho: float = 0.0,
    unmeasured: Sequence[Inferred] = (),
) -> Decision:
    """Choose a model by the rules of this module.

    Args:
        candidates: Measured models; their order plays no role.
        objective: What the pool is for.
        incumbent: The arm that serves now, if any; its profile counts.
        subject: Name of the pool.
        require: Tags that the model must have.
        accept_offload: Whether layers outside device memory are acceptable.
        floor_tps: Least acceptable tokens per second.
        least_context_tokens: Tokens that a request must be able to hold.
        quality_bound: Largest acceptable perplexity as a multiple of the lowest comparable
            one of the models that meet the other requirements, or None.
        rho: Correlation of the perplexities' errors, for rows without chunks; 0 is unpaired.
        unmeasured: Models of which only siblings were measured; offered, never chosen.
    """
    rows = sorted(candidates, key=lambda c: depth_order(c.arm))
    asked = Requirements(
        tags=require,
        accept_offload=accept_offload,
        floor_tps=floor_tps,
        least_context_tokens=least_context_tokens,
    )
    able, refused = _able(rows, asked, objective, incumbent, quality_bound)
    outcome = _apply(able, objective, incumbent, rho) if able else None
    offers = [one for one in unmeasured if require <= one.tags and _promising(one, outcome)]
    evidence = (*(_evidence(row, refused.get(row.arm)) for row in rows), *map(str, offers))
    if outcome is None:
        said = [f"{arm.profile} {why}" for arm, why in refused.items()] or ["none is given"]
        return Decision(
            act=Act.REJECT,
            subject=subject,
            arm=None,
            previous=incumbent,
            reason=f"no model can be chosen for {subject}: {'; '.join([*said, *map(str, offers)])}",
            evidence=evidence,
        )
    chosen = outcome.chosen
    clauses = [outcome.clause]
    if outcome.hidden:
        evidence += (f"{NOISE_HIDES} {' or '.join(outcome.hidden)} is faster",)
    if require:
        free = _able(rows, replace(asked, tags=frozenset()), objective, incumbent, quality_bound)
        clauses += _instead(chosen, _apply(free[0], objective, incumbent, rho), require)
    if chosen.depth_is_given:
        clauses.append("its alpha2 is not measured, so no other depth is guessed (R4)")
    if objective is Objective.QUALITY:
        clauses += map(str, offers)
    act = Act.CHOOSE if incumbent is None else Act.SWITCH
    return Decision(
        act=Act.KEEP if chosen.arm == incumbent else act,
        subject=subject,
        arm=chosen.arm,
        previous=incumbent,
        predicted=_predicted(chosen),
        reason=f"{outcome.rule}: {chosen.arm} ({numbers(chosen)}, "
        f"{residency_text(chosen.residency)}) {'; '.join(clauses)}",
        evidence=evidence,
    )


def _able(
    rows: Sequence[Candidate],
    asked: Requirements,
    objective: Objective,
    incumbent: Arm | None,
    quality_bound: float | None,
) -> tuple[list[Candidate], dict[Arm, str]]:
    """R0 and R1: the rows that may be chosen, and why the others may not."""
    refused = {row.arm: why for row in rows if (why := unfit(row, asked)) is not None}
    able = [row for row in rows if row.arm not in refused]
    if objective is not Objective.SPEED or quality_bound is not None:
        refused |= _incomparable(able, objective, incumbent, bounded=quality_bound is not None)
        able = [row for row in able if row.arm not in refused]
    if quality_bound is not None:
        refused |= _beyond(able, quality_bound)
        able = [row for row in able if row.arm not in refused]
    return able, refused


def _beyond(rows: Sequence[Candidate], bound: float) -> dict[Arm, str]:
    """Rows whose perplexity exceeds the lowest by more than the bound."""
    values = {row.arm: row.quality.value for row in rows if row.quality is not None}
    limit = min(values.values(), default=0.0) * bound
    return {
        arm: f"has a perplexity of {value:g}, above {bound:g} times the lowest (R1)"
        for arm, value in values.items()
        if value > limit
    }


def _instead(chosen: Candidate, free: _Outcome, tags: frozenset[str]) -> list[str]:
    """What would be chosen if no tag were required."""
    if free.chosen is chosen:
        return []
    names = " and ".join(sorted(tags))
    return [f"without the tag {names} it would be {free.chosen.arm} ({numbers(free.chosen)})"]


def _promising(one: Inferred, outcome: _Outcome | None) -> bool:
    """Whether an inferred perplexity is lower than that of the chosen row."""
    if outcome is None or outcome.chosen.quality is None:
        return True
    return one.high < outcome.chosen.quality.value


def _incomparable(
    rows: Sequence[Candidate], objective: Objective, incumbent: Arm | None, *, bounded: bool
) -> dict[Arm, str]:
    """R0: rows whose perplexity does not belong to the largest comparable group.

    If no row has a perplexity, a pool without a bound that does not ask for the lowest one
    goes by the rest.
    """
    runs = Counter(row.quality.run for row in rows if row.quality is not None)
    if not runs and objective is not Objective.QUALITY and not bounded:
        return {}
    home = {row.quality.run for row in rows if row.quality and _is(row, incumbent)}

    def weight(run: PerplexityRun) -> tuple[int, bool, int, str]:
        return runs[run], run in home, run.chunks, repr(run)

    reference = max(runs, key=weight, default=None)
    out: dict[Arm, str] = {}
    for row in rows:
        if row.quality is None or reference is None:
            out[row.arm] = "has no measured perplexity (R0)"
        elif isinstance(verdict := comparable(reference, row.quality.run), Incomparable):
            out[row.arm] = f"has a perplexity that does not compare (R0): {verdict.sentence}"
    return out


def _apply(
    able: Sequence[Candidate], objective: Objective, incumbent: Arm | None, rho: float
) -> _Outcome:
    if objective is Objective.SPEED:
        return _fastest(able, "R2 speed", f"of {len(able)}", incumbent)
    measured = [(row, row.quality) for row in able if row.quality is not None]
    prefer = _most_efficient if objective is Objective.EFFICIENCY else _balanced
    if not measured:
        return prefer(able, "although no perplexity is measured", incumbent)
    best, lowest = min(measured, key=lambda one: (one[1].value, depth_order(one[0].arm)))
    good = [row for row, quality in measured if not _worse(quality, lowest, rho)]
    if objective is Objective.QUALITY:
        return _best_quality(best, good, incumbent)
    among = (
        f"of the {len(good)} whose perplexity is not significantly worse than the best "
        f"({lowest.value:g} of {best.name})"
    )
    return prefer(good, among, incumbent)


def _balanced(rows: Sequence[Candidate], among: str, incumbent: Arm | None) -> _Outcome:
    return _fastest(rows, "R2 balanced", among, incumbent)


def _most_efficient(rows: Sequence[Candidate], among: str, incumbent: Arm | None) -> _Outcome:
    """The most tokens per joule of those that are fast enough; R2 balanced where not known."""
    fast = max(row.tps or 0.0 for row in rows)
    enough = [row for row in rows if (row.tps or 0.0) >= EFFICIENT_SHARE * fast]
    known: dict[Arm, float] = {}
    for row in enough:
        if isinstance(row.tokens_per_joule, Unknown):
            found = _balanced(rows, among, incumbent)
            why = f"the tokens per joule of {row.name} are not known: {row.tokens_per_joule.reason}"
            return replace(found, clause=f"{found.clause}; by speed, because {why}")
        known[row.arm] = row.tokens_per_joule
    best = max(known.values())
    tied = [row for row in enough if known[row.arm] * (1 + TIE_RATIO) >= best]
    chosen = min(tied, key=lambda row: _preference(row, tied, incumbent))
    clause = f"gives {known[chosen.arm]:.3g} tok/J, the most among the {len(enough)} with at least "
    clause += f"{EFFICIENT_SHARE:.0%} of the highest speed {among}"
    if ties := [f"{row.name} ({known[row.arm]:.3g})" for row in tied if row is not chosen]:
        clause = f"{clause}, a tie with {', '.join(ties)}: it {_why(chosen, tied, incumbent)}"
    return _Outcome("R2 efficiency", chosen, clause)


def _best_quality(best: Candidate, good: Sequence[Candidate], incumbent: Arm | None) -> _Outcome:
    tied = [row for row in good if row is not best]
    for row in tied:
        if _is(row, incumbent):
            clause = f"stays as the incumbent: the lowest perplexity, {best.name}, ties with it"
            return _Outcome("R3 quality", row, clause)
    names = ", ".join(row.name for row in tied)
    clause = "has the lowest perplexity" + (f", a statistical tie with {names}" if tied else "")
    return _Outcome("R3 quality", best, clause)


def _fastest(rows: Sequence[Candidate], rule: str, among: str, incumbent: Arm | None) -> _Outcome:
    beaten = {b.arm for a, b in itertools.permutations(rows, 2) if _speed(a, b).faster}
    running = [row for row in rows if row.arm not in beaten] or list(rows)
    chosen = min(running, key=lambda row: _preference(row, running, incumbent))
    ties = [_named(row, chosen) for row in running if row is not chosen]
    slower = [_named(row, chosen) for row in rows if row.arm in beaten and row is not chosen]
    if not ties:
        clause = f"is the fastest {among}" + (f", before {', '.join(slower)}" if slower else "")
        return _Outcome(rule, chosen, clause)
    why = _why(chosen, running, incumbent)
    clause = f"ties with {', '.join(ties)} as the fastest {among} and {why}"
    others = [row for row in running if row is not chosen]
    hidden = tuple(row.name for row in others if _speed(chosen, row).hidden)
    return _Outcome(rule, chosen, clause, hidden)


def _why(chosen: Candidate, tied: Sequence[Candidate], incumbent: Arm | None) -> str:
    """What of the tie rule decided."""
    if _is(chosen, incumbent):
        return "stays as the incumbent"
    return "has the lower perplexity" if _same_run(tied) else "needs the least memory"


def _preference(
    row: Candidate, running: Sequence[Candidate], incumbent: Arm | None
) -> tuple[bool, float, float, tuple[str, int, str, float]]:
    """Tie rule: the incumbent, the lower comparable perplexity, the least memory, the name."""
    value = row.quality.value if row.quality is not None and _same_run(running) else 0.0
    memory = math.inf if row.memory_bytes is None else float(row.memory_bytes)
    return not _is(row, incumbent), value, memory, depth_order(row.arm)


def _same_run(rows: Sequence[Candidate]) -> bool:
    """Whether perplexities can break the tie: all measured, comparable and not all equal."""
    values = {row.quality.value for row in rows if row.quality is not None}
    runs = {None if row.quality is None else row.quality.run for row in rows}
    return len(runs) == 1 and None not in runs and len(values) > 1


def _is(row: Candidate, incumbent: Arm | None) -> bool:
    return incumbent is not None and row.arm.profile == incumbent.profile


def _worse(quality: Quality, lowest: Quality, rho: float) -> bool:
    """Whether a perplexity is significantly worse than the lowest."""
    verdict = compare_quality(lowest, quality, rho=rho)
    return isinstance(verdict, PplComparison) and verdict.verdict is Perplexity.WORSE


def _speed(a: Candidate, b: Candidate) -> SpeedComparison:
    """Paired by prompt where both were measured here, else the bare figures."""
    if a.summary is not None and b.summary is not None:
        verdict = compare_speeds(a.summary, b.summary, own_texts=True)
        if isinstance(verdict, SpeedComparison):
            return verdict
    ratio = (a.tps or 0.0) / (b.tps or math.inf)
    return SpeedComparison(ratio=ratio, interval=None, cells=0, paired=False)


def _named(row: Candidate, chosen: Candidate) -> str:
    """A rival, with the speed of the chosen one over its own."""
    return f"{row.name} ({ratio_text(_speed(chosen, row))})"


def _predicted(row: Candidate) -> Interval | None:
    if row.summary is not None:
        return speed_interval(row.summary)
    return None if row.tps is None else assumed_interval(row.tps)


def _evidence(row: Candidate, refused: str | None) -> str:
    return f"{row.arm}: {numbers(row)}" + ("" if refused is None else f", {refused}")
