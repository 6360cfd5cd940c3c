"""After a start: which choices in the journal still hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from mtpd.errors import MtpdError

if TYPE_CHECKING:
    from mtpd.config.model import Config
    from mtpd.control.choices import Choices
    from mtpd.engine.launch import LaunchPlanner
    from mtpd.store.journal import Journal

__all__ = ["restore"]

log = structlog.get_logger()


async def restore(
    config: Config, choices: Choices, journal: Journal, planner: LaunchPlanner
) -> None:
    """Adopt the newest choice per model and pool that rests on today's fingerprint.

    A new engine, model file, driver, power cap or context voids a choice: it stays in the
    journal and is not served any more.
    """
    digests: dict[str, str] = {}
    for name, profile in config.profiles.items():
        try:
            digests[name] = planner.fingerprint(profile).digest
        except MtpdError as error:
            log.warning("model.unavailable", model=name, reason=str(error), hint=error.hint)
    for name, digest in digests.items():
        decision = await journal.latest_choice(name, digest)
        if decision is not None:
            choices.adopt(decision)
    for name in config.pools:
        latest = await journal.latest_choice(name)
        if latest is None or latest.arm is None:
            continue
        digest = digests.get(latest.arm.profile, "")
        decision = await journal.latest_choice(name, digest)
        if decision is not None:
            choices.adopt(decision)
