"""What the binary and multi-line files of amdgpu say, as pure functions over bytes.

Covers ``gpu_metrics`` (throttle bits), ``ras/umc_err_count`` and the numbers of the
one-value files. A value that cannot be is a reason, never 0 and never an exception.
"""

from __future__ import annotations

import re
import struct
from typing import Final

from mtpd.gpu.base import Throttle
from mtpd.types import Absent, Value

__all__ = ["integer", "isa", "pci_address", "throttle", "uncorrectable"]

NAME: Final = "sysfs"

_V1_0: Final = (1, 0)
_V1_0_BYTES: Final = 80
_THROTTLE_AT: Final = 68
"""Offset of the u32 in gpu_metrics_v1_0 (kgd_pp_interface.h); other versions differ."""

_UNSET: Final = 0xFFFFFFFF

# Bits of Vega 20, smu11_driver_if.h:212: 1 edge, 2 hotspot, 3 HBM, 4-7 regulators,
# 8-10 liquid, PLX and skin, 11-12 TDC, 13 PPT, 14 FIT, 15 PPM.
_BITS: Final = (
    (0b0000_0111_1111_1110, Throttle.THERMAL),
    (0b0001_1000_0000_0000, Throttle.CURRENT),
    (0b0010_0000_0000_0000, Throttle.POWER),
    (0b1100_0000_0000_0000, Throttle.FIRMWARE),
)
_KNOWN_BITS: Final = sum(mask for mask, _ in _BITS)
_UNCORRECTABLE = re.compile(rb"^ue:\s*(\d{1,18})\s*$", re.MULTILINE)
_NUMBER = re.compile(rb"\s*(-?\d{1,19})\s*")


def integer(data: bytes, low: int, high: int, *, where: str) -> Value[int] | Absent:
    """The number in a one-value file.

    Args:
        data: The file's content.
        low: Smallest possible value.
        high: Largest possible value.
        where: The file's name, for the reason.
    """
    found = _NUMBER.fullmatch(data)
    if found is None:
        return Absent(f"{where} holds {data.decode('ascii', 'replace').strip()[:40]!r}")
    value = int(found[1])
    if not low <= value <= high:
        return Absent(f"{where} holds the impossible value {value}")
    return Value(value, NAME)


def throttle(data: bytes) -> Value[Throttle] | Absent:
    """Why a Vega 20 is throttled, from its ``gpu_metrics``.

    Only version 1.0 is read: parsed with another layout, the same bytes are nonsense.
    """
    if len(data) < _V1_0_BYTES:
        return Absent(f"gpu_metrics ends after {len(data)} bytes")
    size, major, minor = struct.unpack_from("<HBB", data)
    if (major, minor) != _V1_0 or size != _V1_0_BYTES:
        return Absent(f"gpu_metrics has version {major}.{minor} ({size} bytes), not 1.0")
    (bits,) = struct.unpack_from("<I", data, _THROTTLE_AT)
    if bits == _UNSET:
        return Absent("gpu_metrics leaves the throttle bits unset")
    found = Throttle.NONE
    for mask, reason in _BITS:
        if bits & mask:
            found |= reason
    if bits & ~_KNOWN_BITS:
        found |= Throttle.UNSPECIFIED
    return Value(found, NAME)


def uncorrectable(data: bytes) -> Value[int] | Absent:
    """Uncorrectable errors of the memory, from ``ras/umc_err_count``."""
    found = _UNCORRECTABLE.search(data)
    if found is None:
        said = data.decode("ascii", "replace").strip()[:40]
        return Absent(f"umc_err_count holds {said!r}")
    return Value(int(found[1]), NAME)


def isa(target_version: int) -> str | None:
    """``gfx906`` of KFD's 90006; None for 0, which nodes of processors have."""
    if target_version <= 0:
        return None
    major, minor, step = target_version // 10_000, target_version // 100 % 100, target_version % 100
    return f"gfx{major}{minor:x}{step:x}"


def pci_address(*, domain: int, location: int) -> str:
    """``0000:03:00.0`` of KFD's ``domain`` and ``location_id`` (bus, device, function)."""
    return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"
