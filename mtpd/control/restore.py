"""After a start: which choices in the journal still hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from anyio import to_thread

from mtpd.errors import MtpdError

if TYPE_CHECKING:
    from collections.abc import Container

    from mtpd.config.live import Configuration
    from mtpd.control.choices import Choices
    from mtpd.engine.launch import LaunchPlanner
    from mtpd.store.journal import Journal
    from mtpd.views import DecisionView

__all__ = ["restore"]

log = structlog.get_logger()


async def restore(
    config: Configuration,
    choices: Choices,
    journal: Journal,
    planner: LaunchPlanner,
    *,
    subjects: Container[str] | None = None,
) -> None:
    """Adopt the newest choice per model and pool that rests on today's fingerprint.

    A new engine, model file, driver, power cap or context voids a choice: it stays in the
    journal and is not served any more. A depth that an operator set stays set.

    Only ``subjects`` are meant, if they are named.
    """
    config = config.now

    def meant(subject: str) -> bool:
        return subjects is None or subject in subjects

    digests: dict[str, str] = {}
    for name, profile in config.profiles.items():
        try:
            # Reading a large vocabulary's header takes a third of a second.
            digests[name] = await to_thread.run_sync(planner.digest, profile)
        except MtpdError as error:
            log.warning("model.unavailable", model=name, reason=str(error), hint=error.hint)
    for name, digest in digests.items():
        if not meant(name):
            continue
        decision = await journal.latest_choice(name, digest)
        if decision is not None:
            choices.adopt(decision, keep_pin=True)
    for name, pool in config.pools.items():
        if not meant(name):
            continue
        found = [
            await _chosen(journal, name, member, digests.get(member)) for member in pool.members
        ]
        valid = [decision for decision in found if decision is not None]
        if valid:
            choices.adopt(max(valid, key=lambda decision: decision.id), keep_pin=True)


async def _chosen(
    journal: Journal, pool: str, member: str, digest: str | None
) -> DecisionView | None:
    """The pool's newest choice that measured the member as it is today, if it chose this member.

    A choice that only compared it, and took another one, says nothing of today's other one.
    """
    decision = None if digest is None else await journal.latest_choice(pool, digest)
    if decision is None or decision.arm is None or decision.arm.profile != member:
        return None
    return decision
