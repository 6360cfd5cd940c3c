"""Who of a queue is first, and who may overtake: the order of waiters, pure.

Waiters are ranked by priority, then by arrival; a waiter counts as one priority higher
each ``age_s``, so that what comes later cannot pass it for ever. The first of the ranking
decides which engine is wanted next. While another model serves, its own waiters of the
same rank may overtake (a change of engine costs more than one more request), until the one
they overtake has been passed ``batch_max_requests`` times or has waited ``batch_max_s``
within this turn.

Bounded overtaking: whoever has come to the highest priority is passed by later arrivals at
most ``batch_max_requests`` times for each other model. Proof: a model serves in the order
of the ranking, so once one of its later arrivals has run, none of its waiters ranks before;
it can then not be first again before the one that was passed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.proxy.admission_types import Priority, Serving

if TYPE_CHECKING:
    from mtpd.proxy.admission_types import State, Waiter

__all__ = ["before", "first", "level", "next_to_run"]


def level(state: State, waiter: Waiter) -> int:
    """The priority that a waiter has by now."""
    risen = int((state.now - waiter.arrived) // state.order.age_s)
    return max(Priority.HIGH, waiter.claim.priority - risen)


def first(state: State) -> Waiter | None:
    """Whose engine is wanted next."""
    return min(state.waiting, key=lambda waiter: _rank(state, waiter), default=None)


def before(state: State, waiter: Waiter) -> tuple[Waiter, ...]:
    """Those who rank before a waiter."""
    mine = _rank(state, waiter)
    return tuple(other for other in state.waiting if _rank(state, other) < mine)


def next_to_run(state: State) -> Waiter | None:
    """Who may use the serving engine at once."""
    engine = state.engine
    if not isinstance(engine, Serving) or state.alone is not None:
        return None
    if len(state.running) >= engine.capacity:
        return None
    own = (waiter for waiter in state.waiting if waiter.profile == engine.profile)
    best = min(own, key=lambda waiter: _rank(state, waiter), default=None)
    if best is None or (best.claim.alone and state.running):
        return None
    mine = level(state, best)
    passes = all(
        level(state, other) == mine and not _is_due(state, other) for other in before(state, best)
    )
    return best if passes else None


def _rank(state: State, waiter: Waiter) -> tuple[int, int]:
    return level(state, waiter), waiter.id


def _is_due(state: State, waiter: Waiter) -> bool:
    """Whether nobody may overtake a waiter any more in this turn."""
    began = waiter.arrived if state.turn is None else max(waiter.arrived, state.turn.began)
    limits = state.order
    late = state.now - began >= limits.batch_max_s
    return late or waiter.overtaken >= limits.batch_max_requests
