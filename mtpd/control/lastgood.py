"""Keeps the choices that stand in a small file, and brings them back where the database is lost.

The journal is where choices are kept; this is for the day on which it had to be set aside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio
import structlog
from anyio import to_thread

from mtpd.clock import rfc3339
from mtpd.errors import MtpdError, StoreError
from mtpd.store.journal import SNAPSHOT
from mtpd.store.snapshot import Good
from mtpd.types import Absent
from mtpd.views import ArmView
from tuner.types import Act, Decision

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.clock import Clock
    from mtpd.config.live import Configuration
    from mtpd.config.model import Profile
    from mtpd.control.choices import Choice, Choices
    from mtpd.control.recorder import StoreRecorder
    from mtpd.store.snapshot import SnapshotFile
    from mtpd.views import Json

__all__ = ["LastGood"]

log = structlog.get_logger()

AGAIN_S: Final = 30.0
"""How long after a disk refused it is asked again."""

REASON_CHARACTERS: Final = 2000
"""Of a decision's sentence; a snapshot holds that of every model."""


class LastGood:
    """The one writer of the snapshot, and its one reader at start.

    Args:
        config: The models and pools.
        choices: What stands.
        recorder: Journals what is brought back.
        digest: The fingerprint of a profile as it is now; reads files.
        file: The snapshot.
        clock: Dates what is new in it.
        again_s: Seconds until a refused write is tried again.
    """

    def __init__(
        self,
        *,
        config: Configuration,
        choices: Choices,
        recorder: StoreRecorder,
        digest: Callable[[Profile], str],
        file: SnapshotFile,
        clock: Clock,
        again_s: float = AGAIN_S,
    ) -> None:
        self._config, self._choices, self._recorder = config, choices, recorder
        self._digest, self._file, self._clock = digest, file, clock
        self._again_s = again_s
        self._changed = anyio.Event()
        self._written: tuple[Good, ...] | None = None
        self._told = False

    def hear(self) -> None:
        """Note that other choices may stand now."""
        self._changed.set()

    async def run(self) -> None:
        """Write what stands whenever it changes; ends only by cancellation."""
        refused = False
        while True:
            if refused:
                await anyio.sleep(self._again_s)
            else:
                await self._changed.wait()
            self._changed = anyio.Event()
            refused = not await self.save()

    async def save(self) -> bool:
        """Write what stands now, if it is not written; False where the disk refused."""
        standing = self._choices.standing()
        try:
            await to_thread.run_sync(self._save, standing)
        except StoreError as error:
            if not self._told:  # once for all tries in a row
                log.warning("snapshot.not_written", reason=str(error), hint=error.hint)
            self._told = True
            return False
        self._told = False
        return True

    async def bring_back(self, lost: str) -> int:
        """Serve what the snapshot says and still holds; returns how many choices.

        Each is a decision of the new journal, which later starts find there.

        Args:
            lost: What became of the database, a clause.
        """
        found = await to_thread.run_sync(self._file.read)
        if isinstance(found, Absent):
            log.warning("snapshot.unusable", path=str(self._file.path), reason=found.reason)
            return 0
        back = 0
        for one in found:
            try:
                back += await self._back(one, lost)
            except MtpdError as error:
                log.warning("snapshot.void", subject=one.subject, reason=str(error))
        return back

    async def _back(self, one: Good, lost: str) -> bool:
        config = self._config.now
        profile = config.profiles.get(one.arm.profile)
        pool = config.pools.get(one.subject)
        known = one.subject == one.arm.profile or (
            pool is not None and one.arm.profile in pool.members
        )
        if profile is None or not known:
            log.info("snapshot.void", subject=one.subject, reason="not in the configuration")
            return False
        if await to_thread.run_sync(self._digest, profile) != one.fingerprint:
            why = "its engine, file or settings are not those any more that were measured"
            log.info("snapshot.void", subject=one.subject, reason=why)
            return False
        decision = Decision(
            act=Act.KEEP,
            subject=one.subject,
            arm=one.arm.arm(),
            reason=(
                f"{lost}; {one.subject} keeps depth {one.arm.depth}, as the snapshot of "
                f"{one.at} says: {one.reason}"
            ),
            evidence=("its fingerprint is the one under which it was measured",),
        )
        inputs: dict[str, Json] = {
            SNAPSHOT: {"fingerprint": one.fingerprint, "decision_id": one.decision_id}
        }
        view = await self._recorder.decide(decision, inputs=inputs)
        self._choices.adopt(view, keep_pin=True)
        return True

    def _save(self, standing: dict[str, Choice]) -> None:
        if self._written is None:
            found = self._file.read()
            self._written = () if isinstance(found, Absent) else found
            if isinstance(found, Absent) and not standing:
                return
        before = {one.subject: one for one in self._written}
        now = []
        for subject, choice in standing.items():
            good = self._good(subject, choice)
            if good is None:
                continue
            was = before.get(subject)
            if was is not None and replace(was, at=good.at) == good:
                good = was
            now.append(good)
        if tuple(now) != self._written:
            self._file.write(now)
            self._written = tuple(now)

    def _good(self, subject: str, choice: Choice) -> Good | None:
        profile = self._config.profiles.get(choice.arm.profile)
        if profile is None:
            return None
        try:
            fingerprint = self._digest(profile)
        except MtpdError as error:
            log.warning("snapshot.without", subject=subject, reason=str(error))
            return None
        reason = choice.reason.encode(errors="replace").decode()
        return Good(
            subject=subject,
            arm=ArmView.of(choice.arm),
            fingerprint=fingerprint,
            reason=f"{reason[:REASON_CHARACTERS]}…" if len(reason) > REASON_CHARACTERS else reason,
            decision_id=choice.decision_id,
            at=rfc3339(self._clock.utc()),
        )
