"""The full hashes of the models' files: what is known, and reading what is not.

Size, time and header tell files apart at once and make the fingerprint; the full hash
proves which file it was. Reading 15 GB takes a while, so it is found in the background,
stored, and shown once it is known. Nothing waits for it, and no decision rests on it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import structlog

from mtpd.engine.filehash import CHUNK, hash_file
from mtpd.engine.launch import size_and_time
from mtpd.errors import MtpdError
from mtpd.views import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.clock import Clock
    from mtpd.config.live import Configuration
    from mtpd.config.model import Profile
    from mtpd.engine.launch import LaunchPlanner
    from mtpd.store.files import FileDigests
    from mtpd.views import Json

__all__ = ["DELAY_S", "ModelHashes"]

log = structlog.get_logger()

DELAY_S = 60.0
"""After a start the disk belongs to the first model that loads."""

AGAIN_S = 600.0
"""How long after a round the next one looks for files that came, or changed, meanwhile."""

PAUSE_S = 0.5
"""How long a reading that yields to other work waits before it looks again."""


class ModelHashes:
    """Knows the hashes of every configured model's and drafter's file.

    Args:
        config: The profiles.
        planner: Makes their fingerprints.
        digests: Where hashes are kept.
        clock: Source of time.
        busy: Whether the machine has better to do at this moment.
        delay_s: Seconds from the start to the first reading.
        again_s: Seconds between two rounds.
        chunk: Bytes that are read at once.
    """

    def __init__(
        self,
        *,
        config: Configuration,
        planner: LaunchPlanner,
        digests: FileDigests,
        clock: Clock,
        busy: Callable[[], bool],
        delay_s: float = DELAY_S,
        again_s: float = AGAIN_S,
        chunk: int = CHUNK,
    ) -> None:
        self._config = config
        self._planner = planner
        self._digests = digests
        self._clock = clock
        self._busy = busy
        self._delay_s, self._again_s, self._chunk = delay_s, again_s, chunk
        self._told: dict[str, str] = {}

    async def run(self) -> None:
        """Hash one file after the other until cancelled, each once as long as it stays."""
        await anyio.sleep(self._delay_s)
        while True:
            for profile in self._config.profiles.values():
                for path in _paths(profile).values():
                    await self._visit(profile.name, path)
            await anyio.sleep(self._again_s)

    async def sha256(self, path: str) -> str | None:
        """The hash of the file that lies there now; None while it is unknown."""
        found = size_and_time(path)
        if found is None:
            return None
        return await self._digests.get(path, size=found[0], mtime_ns=found[1])

    async def fields(self, model: str, fingerprint: str) -> dict[str, Json] | None:
        """What a fingerprint of a model stands for, with the hashes that are known.

        None where it is not the model's any more: another file lies there by now, and its
        names must not be stored as the old one's.

        Raises:
            EngineError: The model file is missing or no whole GGUF.
        """
        profile = self._config.profiles[model]
        now = self._planner.fingerprint(profile)
        if now.digest != fingerprint:
            return None
        fields = {name: encode(value) for name, value in now.describe().items()}
        for name, path in _paths(profile).items():
            sha256 = await self.sha256(path)
            if sha256 is not None:
                fields[name] = sha256
        return fields

    async def _visit(self, model: str, path: str) -> None:
        """Hash a file if it is there and its hash is unknown; a failure is told once."""
        try:
            # A model whose file is missing was told at the start, with what to do.
            if size_and_time(path) is None or await self.sha256(path) is not None:
                return
            await self._hash(model, path)
        except MtpdError as error:
            if self._told.get(path) != str(error):
                self._told[path] = str(error)
                log.warning("model.not_hashed", model=model, reason=str(error), hint=error.hint)

    async def _hash(self, model: str, path: str) -> None:
        began = self._clock.now()
        found = await hash_file(Path(path), between=self._quiet, chunk=self._chunk)
        await self._digests.put(path, size=found.size, mtime_ns=found.mtime_ns, sha256=found.sha256)
        self._told.pop(path, None)
        seconds = round(self._clock.now() - began, 3)
        log.info("model.hashed", model=model, path=path, sha256=found.sha256, seconds=seconds)

    async def _quiet(self) -> None:
        while self._busy():  # noqa: ASYNC110  # nobody tells when it ends; it may be asked
            await anyio.sleep(PAUSE_S)


def _paths(profile: Profile) -> dict[str, str]:
    """A profile's files by the name that their hash has among the fingerprint's fields."""
    named = {"model_sha256": profile.model, "draft_sha256": profile.drafter.model}
    return {name: path for name, path in named.items() if path}
