"""Names for quantities that must not be mixed."""

from __future__ import annotations

from typing import NewType

__all__ = ["HOST", "MIB", "DeviceKey", "EngineId", "OperationId", "Seq"]

MIB = 1024 * 1024
"""Bytes per MiB."""

DeviceKey = NewType("DeviceKey", str)
"""A card by its PCI address ("0000:03:00.0"), or "host" for the CPU."""

HOST = DeviceKey("host")
"""The device of a machine without a GPU."""

EngineId = NewType("EngineId", str)
"""One engine process: unique per start, never reused."""

OperationId = NewType("OperationId", str)
"""One long-running operation of the control API."""

Seq = NewType("Seq", int)
"""Position of an event in the daemon's event stream."""
