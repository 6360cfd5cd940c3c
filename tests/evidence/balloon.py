"""Takes device memory of an NVIDIA card away, so that a large card is as small as a 16 GiB one.

``python -m tests.evidence.balloon --leave-mib 16384`` holds the memory until its standard input
ends. Plain allocations through the driver library; needs no toolkit.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from typing import Any

__all__ = ["main"]

_MIB = 2**20
_CHUNK = 256 * _MIB


class DriverError(RuntimeError):
    """The driver refused a call."""


def _call(library: Any, name: str, *arguments: Any) -> None:
    code = getattr(library, name)(*arguments)
    if code:
        msg = f"{name} failed with CUDA error {code}"
        raise DriverError(msg)


def _free_bytes(library: Any) -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _call(library, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def inflate(leave_bytes: int) -> int:
    """Allocate all but ``leave_bytes`` of the first card; returns what is free then."""
    library = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _call(library, "cuInit", 0)
    _call(library, "cuDeviceGet", ctypes.byref(device), 0)
    _call(library, "cuCtxCreate_v2", ctypes.byref(context), 0, device)
    while (spare := _free_bytes(library) - leave_bytes) > _MIB:
        pointer = ctypes.c_uint64()
        size = ctypes.c_size_t(min(_CHUNK, spare))
        _call(library, "cuMemAlloc_v2", ctypes.byref(pointer), size)
    return _free_bytes(library)


def main() -> None:
    """Inflate, say what is left, and hold it until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m tests.evidence.balloon", description=__doc__)
    parser.add_argument("--leave-mib", type=int, required=True)
    args = parser.parse_args()
    left = inflate(args.leave_mib * _MIB)
    sys.stdout.write(f"{left // _MIB} MiB are left\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
