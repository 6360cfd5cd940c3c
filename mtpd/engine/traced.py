"""Verification steps of one request, from the lines of ``LLAMA_TRACE=1``.

They carry the length of every draft, which no counter does: with p-min, or at the end of a
reply, drafts are shorter than the depth (``tuner.drafts``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.engine.facts import DraftVerified
from tuner.drafts import DraftStep

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mtpd.engine.facts import Fact

__all__ = ["draft_steps"]


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
