"""After a start: which choices in the journal still hold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog
from anyio import to_thread

from mtpd.errors import MtpdError

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from mtpd.config.live import Configuration
    from mtpd.config.model import Pool
    from mtpd.control.choices import Choices
    from mtpd.control.recorder import StoreRecorder
    from mtpd.engine.launch import LaunchPlanner
    from mtpd.views import DecisionView

__all__ = ["restore"]

log = structlog.get_logger()


async def restore(
    config: Configuration,
    choices: Choices,
    recorder: StoreRecorder,
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
        decision = await recorder.latest_choice(name, digest)
        if decision is not None:
            choices.adopt(decision, keep_pin=True)
    for name, pool in config.pools.items():
        if meant(name):
            await _restore_pool(choices, recorder, pool, digests)


async def _restore_pool(
    choices: Choices, recorder: StoreRecorder, pool: Pool, digests: Mapping[str, str]
) -> None:
    """Adopt the pool's standing choice, with the members that are as they were measured for it."""
    newest = {
        member: await recorder.latest_choice(pool.name, digests[member])
        for member in pool.members
        if member in digests
    }
    decision = _standing(newest)
    if decision is None:
        return
    compared = await recorder.compared(decision)
    if compared is not None:
        same = tuple(one for one in compared.members if newest.get(one.arm.profile) == decision)
        compared = replace(compared, members=same)
    choices.adopt(decision, compared, keep_pin=True)


def _standing(newest: Mapping[str, DecisionView | None]) -> DecisionView | None:
    """The newest choice of a pool that took a member which is still as it was measured.

    A choice that only compared it, and took another one, says nothing of today's other one.

    Args:
        newest: Per member, the newest choice that measured it as it is today.
    """
    taken = [
        decision
        for member, decision in newest.items()
        if decision is not None and decision.arm is not None and decision.arm.profile == member
    ]
    return max(taken, key=lambda decision: decision.id, default=None)
