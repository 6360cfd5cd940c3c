"""Engine starts that the ledger's disk would not take, in a small file beside the sockets.

``starts-….json`` in the runtime directory, which a service manager keeps in memory: it holds for as
long as a process can live, and no longer. Two daemons may share that directory, but no state
directory, whose name is part of this one. Covers the file; when a start belongs in it is the
business of ``mtpd.store.backlog``.
"""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mtpd.store import private_file
from mtpd.units import EngineId

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NoNotes", "Noted", "StartNotes"]

_MAX_BYTES: Final = 1024 * 1024

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A start that no row of the ledger tells of.

    Attributes:
        engine_id: What its process carries in its environment.
        boot_id: The boot that it was started in.
        pid: Not known: the note is written before the process exists.
        start_ticks: Nor this.
    """

    engine_id: EngineId
    boot_id: str
    pid: int | None = None
    start_ticks: int | None = None


class _Row(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    engine_id: Annotated[str, Field(min_length=1, max_length=128)]
    boot_id: Annotated[str, Field(max_length=128)]


class _Document(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    version: Literal[1]
    starts: list[_Row]


class StartNotes:
    """Writes and reads the file; everything that it notes is of this boot.

    Args:
        directory: The runtime directory.
        state: The state directory, which one daemon uses at a time.
        boot_id: The present boot.
    """

    def __init__(self, directory: Path, *, state: Path, boot_id: str) -> None:
        whose = hashlib.sha256(os.fsencode(state.resolve())).hexdigest()[:12]
        self.path = directory / f"starts-{whose}.json"
        self._boot_id = boot_id
        self._rows: dict[EngineId, Noted] = {}

    def read(self) -> tuple[Noted, ...]:
        """What an earlier daemon noted and this boot may still hold; from now on noted here.

        A file that cannot be believed holds nothing: it is written before a process exists.
        """
        private_file.sweep(self.path)
        try:
            content = private_file.read(self.path, limit=_MAX_BYTES, owner=os.geteuid())
            found = _Document.model_validate_json(content).starts
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError, private_file.UntrustedError) as problem:
            log.warning("starts.unreadable", path=str(self.path), reason=_why(problem))
            return ()
        for row in found:
            if row.boot_id == self._boot_id:
                engine_id = EngineId(row.engine_id)
                self._rows[engine_id] = Noted(engine_id=engine_id, boot_id=row.boot_id)
        return tuple(self._rows.values())

    def put(self, engine_id: EngineId) -> None:
        """Note a start; it is there when this returns, whatever happens to the daemon.

        Raises:
            OSError: It cannot be written; there is no note.
        """
        self._write({**self._rows, engine_id: Noted(engine_id=engine_id, boot_id=self._boot_id)})

    def drop(self, engine_id: EngineId) -> None:
        """Forget a start; a note that cannot be taken out does no harm and goes with the next."""
        left = {key: row for key, row in self._rows.items() if key != engine_id}
        if left == self._rows:
            return
        try:
            self._write(left)
        except OSError as problem:
            log.warning("starts.not_written", path=str(self.path), reason=problem.strerror)

    def _write(self, rows: dict[EngineId, Noted]) -> None:
        if rows:
            told = [_Row(engine_id=row.engine_id, boot_id=row.boot_id) for row in rows.values()]
            text = _Document(version=1, starts=told).model_dump_json() + "\n"
            private_file.replace(self.path, text.encode())
        else:
            self.path.unlink(missing_ok=True)
        self._rows = rows


class NoNotes:
    """Takes none."""

    def put(self, _engine_id: EngineId) -> None:
        """Refuse."""
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    def drop(self, _engine_id: EngineId) -> None:
        """Have none."""


def _why(problem: Exception) -> str:
    if isinstance(problem, ValidationError):
        return "it is not what mtpd wrote"
    if isinstance(problem, OSError):
        return f"it cannot be read: {problem.strerror}"
    return f"it {problem}"
