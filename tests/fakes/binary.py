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

PROGRAM = Path(__file__).with_name("llama_server.py")
FAKE: Sequence[str] = (sys.executable, str(PROGRAM))
"""The fake's argv without arguments, for whoever sets FAKE_LLAMA in the environment."""


def fake_binary(path: Path, script: Script | None = None, *, program: Path = PROGRAM) -> Path:
    """Write an executable that runs the fake with this script, and return its path.

    The script is part of the file, because engines are started with an environment
    that is built from empty.
    """
    argv = shlex.join((sys.executable, str(program)))
    knobs = shlex.quote((script or Script()).dump())
    path.write_text(f'#!/bin/sh\nexport {VARIABLE}={knobs}\nexec {argv} "$@"\n')
    path.chmod(0o755)
    return path
