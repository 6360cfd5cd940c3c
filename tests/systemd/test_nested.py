"""The user's units under a real systemd --user, in namespaces of its own; ``make systemd``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.nested, pytest.mark.slow, pytest.mark.timeout(600)]

PROMISES = 12
KILLS = 50 if os.environ.get("MTPD_ENDURANCE") else 3


def test_every_promise_of_the_users_units_is_kept() -> None:
    script = Path(__file__).with_name("nested.sh")
    said = subprocess.run(
        (script, sys.executable, str(KILLS)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    kept = [line for line in said.stdout.splitlines() if line.startswith("ok: ")]
    assert (said.returncode, len(kept)) == (0, PROMISES), said.stdout
