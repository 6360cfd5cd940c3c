"""The last choices that were known to be good, in a small file beside the database.

``lkg.json`` is read only where the database had to be set aside or cannot be read. Covers
its codec, which is pure, and the file. Whether a choice still holds is control's business.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mtpd.errors import StoreError
from mtpd.store import private_file, rows
from mtpd.types import Absent
from mtpd.views import ArmView

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mtpd.views import Json

__all__ = ["MAX_BYTES", "NAME", "Good", "SnapshotFile", "decode", "encode"]

NAME: Final = "lkg.json"

MAX_BYTES: Final = 1024 * 1024

_VERSION: Final = 1
_Text = Annotated[str, Field(max_length=4096)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Good:
    """One choice that stood.

    Attributes:
        subject: Model or pool.
        fingerprint: Digest under which ``arm`` was measured; it holds under no other.
        reason: The sentence of the decision.
        decision_id: Its row in the database that is lost, or None.
        at: When the snapshot first had it.
    """

    subject: str
    arm: ArmView
    fingerprint: str
    reason: str
    decision_id: int | None
    at: str


class _Arm(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    profile: _Text
    drafter: _Text
    depth: Annotated[int, Field(ge=0, le=1024)]
    p_min: Annotated[float, Field(allow_inf_nan=False)]


class _Row(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    subject: _Text
    arm: _Arm
    fingerprint: _Text
    reason: _Text
    decision_id: Annotated[int, Field(ge=1)] | None
    at: _Text


class _Document(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    version: Literal[1]
    choices: Annotated[list[_Row], Field(max_length=4096)]
    sha256: _Text


def encode(choices: Sequence[Good]) -> bytes:
    """The file's content.

    Raises:
        StoreError: It would be larger than a reader accepts.
    """
    told: list[Json] = [_told(one) for one in choices]
    content = rows.dump({"version": _VERSION, "choices": told, "sha256": _sum(told)}).encode()
    if len(content) > MAX_BYTES:
        msg = f"the snapshot of {len(choices)} choices is larger than {MAX_BYTES} bytes"
        raise StoreError(msg, hint="serve fewer models from one daemon")
    return content


def decode(content: bytes) -> tuple[Good, ...] | Absent:
    """The choices, or why none of them must be believed; never raises."""
    if len(content) > MAX_BYTES:
        return Absent(f"it is larger than {MAX_BYTES} bytes")
    try:
        document = _Document.model_validate_json(content)
        choices = tuple(_good(row) for row in document.choices)
        expected = _sum([_told(one) for one in choices])
    except ValidationError as problem:
        first = problem.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        return Absent(f"it is not what mtpd wrote: {where}: {first['msg']}")
    except (StoreError, ValueError) as problem:  # an arm that cannot be
        return Absent(f"it is not what mtpd wrote: {problem}")
    if document.sha256 != expected:
        return Absent("its checksum does not fit what it holds")
    return choices


def _good(row: _Row) -> Good:
    arm = ArmView(
        profile=row.arm.profile,
        drafter=row.arm.drafter,
        depth=row.arm.depth,
        p_min=row.arm.p_min,
    )
    arm.arm()
    return Good(
        subject=row.subject,
        arm=arm,
        fingerprint=row.fingerprint,
        reason=row.reason,
        decision_id=row.decision_id,
        at=row.at,
    )


def _told(one: Good) -> dict[str, Json]:
    return {
        "subject": one.subject,
        "arm": {
            "profile": one.arm.profile,
            "drafter": one.arm.drafter,
            "depth": one.arm.depth,
            "p_min": float(one.arm.p_min),
        },
        "fingerprint": one.fingerprint,
        "reason": one.reason,
        "decision_id": one.decision_id,
        "at": one.at,
    }


def _sum(told: Sequence[Json]) -> str:
    return hashlib.sha256(rows.dump(list(told)).encode()).hexdigest()


class SnapshotFile:
    """Reads and replaces the file.

    Args:
        directory: The state directory.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME

    def read(self) -> tuple[Good, ...] | Absent:
        """What was written last, or why it cannot be had; never raises."""
        try:
            content = private_file.read(self.path, limit=MAX_BYTES, owner=os.geteuid())
        except private_file.UntrustedError as problem:
            return Absent(f"it {problem}")
        except FileNotFoundError:
            return Absent("there is none")
        except OSError as problem:
            return Absent(f"it cannot be read: {problem.strerror}")
        return decode(content)

    def write(self, choices: Sequence[Good]) -> None:
        """Replace the file durably: the old choices are there, or these.

        Raises:
            StoreError: The disk refuses; what was there is there still.
        """
        try:
            private_file.replace(self.path, encode(choices))
        except OSError as problem:
            msg = f"the snapshot {self.path} cannot be written: {problem.strerror}"
            raise StoreError(msg, hint="free disk space in the state directory") from problem
