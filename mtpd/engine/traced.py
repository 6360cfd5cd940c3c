"""Verification steps of one request, from the lines of ``LLAMA_TRACE=1``.

They carry the length of every draft, which no counter does: with p-min, or at the end of a
reply, drafts are shorter than the depth (``tuner.drafts``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.engine.facts import DraftAcceptance, DraftVerified
from tuner.drafts import DraftStep, traced

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mtpd.engine.facts import Fact

__all__ = ["draft_steps", "offered"]


def draft_steps(facts: Iterable[Fact], *, task: int) -> tuple[DraftStep, ...]:
    """Every draft that was verified for a request, once.

    Where an engine cannot take back a rejected token it restores a checkpoint and verifies
    the accepted part again; that line repeats the step and is left out.

    Args:
        facts: Facts in the order of the log, of any request.
        task: The request's task id.
    """
    steps: list[DraftStep] = []
    repeats = False
    for fact in facts:
        if not isinstance(fact, DraftVerified) or fact.task != task:
            continue
        if not repeats:
            steps.append(DraftStep(drafted=fact.drafted, accepted=fact.accepted))
        repeats = fact.restored
    return tuple(steps)


def offered(
    facts: Sequence[Fact], *, depth: int, totals: tuple[int | None, int | None, int | None]
) -> tuple[int, ...] | None:
    """Steps whose draft had position i after all before it were kept, for each position.

    Args:
        facts: Facts of one request, in the order of the log.
        depth: Draft depth of the engine.
        totals: Steps, drafted and accepted tokens as the counters or the reply say.

    Returns:
        None where the request was not traced, or the trace does not add up to the totals.
    """
    ends = [fact for fact in facts if isinstance(fact, DraftAcceptance)]
    task = ends[-1].task if ends else None
    steps = () if task is None else draft_steps(facts, task=task)
    seen = (len(steps), sum(s.drafted for s in steps), sum(s.accepted for s in steps))
    if not steps or seen != totals or max(s.drafted for s in steps) > depth:
        return None
    return traced(depth, steps).offered
