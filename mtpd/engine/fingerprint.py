"""What a measured result depends on, apart from the depth, as named values and one digest.

Two results may be compared only if their fingerprints are equal; where they are not,
the names tell what changed. The depth and the workload are kept beside the
fingerprint, not in it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mtpd.config.model import Profile
    from mtpd.types import EngineBinary

__all__ = ["FileIdentity", "Fingerprint", "fingerprint", "identify"]

FieldValue = None | int | float | str | list[str]

_NAMES = {
    "draft_file": "draft file",
    "draft_kv_type": "draft KV type",
    "drafter": "drafter",
    "engine": "engine",
    "flags": "engine flags",
    "kv_type": "KV type",
    "model_file": "model file",
    "power_cap_w": "power cap",
}
_UNITS = {"power_cap_w": " W", "context": " tokens"}
_SHORT = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIdentity:
    """A file as it can be told apart at once, without reading all of it.

    Attributes:
        size: Bytes.
        mtime_ns: Time of the last change.
        header: Digest of the GGUF header.
    """

    size: int
    mtime_ns: int
    header: str

    def __str__(self) -> str:
        """One string for the digest and for sentences."""
        return f"{self.size} bytes, header {self.header}, mtime {self.mtime_ns}"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Named values; equal digests mean that results may be compared."""

    fields: Mapping[str, FieldValue]

    @property
    def digest(self) -> str:
        """SHA-256 over the sorted JSON of the fields, in hex."""
        text = json.dumps(dict(self.fields), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def describe(self) -> dict[str, FieldValue]:
        """The fields by name, to be stored beside the digest."""
        return {name: self.fields[name] for name in sorted(self.fields)}

    def differences(self, other: Fingerprint) -> tuple[str, ...]:
        """What changed from this one to the other, e.g. ``power cap 225 W -> 150 W``."""
        names = sorted(self.fields.keys() | other.fields.keys())
        return tuple(
            f"{_NAMES.get(name, name)} {_shown(name, self.fields.get(name))}"
            f" -> {_shown(name, other.fields.get(name))}"
            for name in names
            if self.fields.get(name) != other.fields.get(name)
        )


def fingerprint(
    *,
    binary: EngineBinary,
    profile: Profile,
    flags: tuple[str, ...],
    model_file: FileIdentity,
    draft_file: FileIdentity | None,
    device: str,
    driver: str | None,
    power_cap_w: float | None,
    threads: int | None,
    gate: str | None = None,
) -> Fingerprint:
    """Collect everything that a result of this profile depends on except the depth.

    Args:
        binary: The engine; its digest covers its libraries.
        profile: What is loaded.
        flags: ``mtpd.engine.command.effective_flags`` of the profile.
        model_file: The GGUF.
        draft_file: The separate drafter's file, or None.
        device: Device key.
        driver: Driver version, or None where none applies.
        power_cap_w: Cap in force, or None where none applies.
        threads: Engine threads where the profile names none.
        gate: How it is judged that a card is cool, where it is not by a temperature: a
            card at rest at 60 degrees is no card at 44.
    """
    cool = {} if gate is None else {"gate": gate}
    return Fingerprint(
        {
            "context": profile.context,
            "device": device,
            "draft_file": None if draft_file is None else str(draft_file),
            "draft_kv_type": profile.draft_kv_type or profile.kv_type,
            "drafter": profile.drafter.word,
            "driver": driver,
            "engine": binary.digest,
            "flags": list(flags),
            **cool,
            "kv_type": profile.kv_type,
            "model_file": str(model_file),
            "power_cap_w": None if power_cap_w is None else float(power_cap_w),
            "slots": profile.slots,
            "threads": profile.threads if profile.threads is not None else threads,
        }
    )


def identify(path: Path, *, header: str) -> FileIdentity:
    """Take a file's size and time; its header's digest comes from ``mtpd.engine.gguf``."""
    found = path.stat()
    return FileIdentity(size=found.st_size, mtime_ns=found.st_mtime_ns, header=header)


def _shown(name: str, value: FieldValue) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return " ".join(value)
    if isinstance(value, float):
        return f"{value:g}{_UNITS.get(name, '')}"
    if name == "engine" and isinstance(value, str):
        return value[:_SHORT]
    return f"{value}{_UNITS.get(name, '')}"
