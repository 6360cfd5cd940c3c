"""Puts scripted tools of llama.cpp where a daemon looks for them."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

__all__ = ["fake_tool"]

PROCESS = Path(__file__).with_name("tool_process.py")


def fake_tool(folder: Path, name: str, **knobs: object) -> Path:
    """Write an executable of this name that runs the script with these knobs."""
    path = folder / name
    given = shlex.quote(json.dumps(knobs))
    words = shlex.join((sys.executable, str(PROCESS), name))
    path.write_text(f'#!/bin/sh\nexport FAKE_TOOL={given}\nexec {words} "$@"\n')
    path.chmod(0o755)
    return path
