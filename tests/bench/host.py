"""Which machine ran a benchmark."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path


def machine() -> str:
    """Processor, cores and kernel."""
    text = Path("/proc/cpuinfo").read_text()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    name = names[0] if names else platform.processor()
    system = f"Linux {platform.release()}, Python {sys.version.split()[0]}"
    return f"{name}, {os.cpu_count()} cores, {system}"
