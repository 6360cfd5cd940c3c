"""``make fuzz``: atheris looks for what breaks a target, guided by coverage.

    python -m tests.fuzz.guided TARGET SECONDS

Needs the package ``mtpd[fuzz]``. Ends with another exit code than 0, and the input in a file, where
something was found.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["mtpd", "tuner"]):
    from tests.fuzz.targets import SEEDS, TARGETS


def main() -> None:
    """Look for so many seconds."""
    name, seconds = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(SEEDS[name]()):
            (Path(folder) / str(number)).write_bytes(seed)
        limits = [f"-max_total_time={seconds}", "-max_len=8192", "-timeout=30"]
        atheris.Setup([sys.argv[0], *limits, folder], TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
