"""Puts the fake llama-server where a configuration can name it: one executable file."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fakes.script import VARIABLE, Script

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FAKE", "fake_binary"]

FAKE: Sequence[str] = (sys.executable, str(Path(__file__).with_name("llama_server.py")))
"""The fake's argv without arguments, for whoever sets FAKE_LLAMA in the environment."""


def fake_binary(path: Path, script: Script | None = None) -> Path:
    """Write an executable that runs the fake with this script, and return its path.

    The script is part of the file, because engines are started with an environment
    that is built from empty.
    """
    knobs = shlex.quote((script or Script()).dump())
    path.write_text(f'#!/bin/sh\nexport {VARIABLE}={knobs}\nexec {shlex.join(FAKE)} "$@"\n')
    path.chmod(0o755)
    return path
