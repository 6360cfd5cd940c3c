"""The user's units under a real systemd --user, in namespaces of its own; ``make systemd``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.nested, pytest.mark.slow, pytest.mark.timeout(300)]

PROMISES = 8


def test_every_promise_of_the_users_units_is_kept() -> None:
    script = Path(__file__).with_name("nested.sh")
    said = subprocess.run(
        (script, sys.executable),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    kept = [line for line in said.stdout.splitlines() if line.startswith("ok: ")]
    assert (said.returncode, len(kept)) == (0, PROMISES), said.stdout
