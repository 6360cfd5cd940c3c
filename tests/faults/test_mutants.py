"""The simulation finds faults that are put into the core on purpose."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.uncounted import uncounted

ROOT = Path(__file__).parents[2]
ALL = os.environ.get("MTPD_ENDURANCE") == "1"
WORLDS = 120
"""In which every fault must show."""


@dataclass(frozen=True)
class Mutant:
    """A fault: one place of the source, said otherwise.

    Attributes:
        finds: What the broken rule says.
    """

    name: str
    file: str
    old: str
    new: str
    finds: str


MUTANTS = (
    Mutant(
        "two engines on one seat",
        "mtpd/proxy/engines.py",
        "        await self.stop(seat, reason)\n        actor =",
        "        actor =",
        "of its seat",
    ),
    Mutant(
        "a process before its row",
        "mtpd/supervise/starter.py",
        "            await self._intend(life)\n",
        "",
        "before its row is durable",
    ),
    Mutant(
        "neither row nor note",
        "mtpd/store/backlog.py",
        "            self._notes.put(engine_id)\n",
        "            pass\n",
        "or its note",
    ),
    Mutant(
        "a note that is taken back too early",
        "mtpd/store/backlog.py",
        "            if ended:\n                self._forget",
        "            if engine_id:\n                self._forget",
        "taken back",
    ),
    Mutant(
        "a queue that nobody looks at",
        "mtpd/proxy/admission.py",
        "            if isinstance(state.engine, Serving | Pending):",
        "            if isinstance(state.engine, Serving):",
        "nobody is at it",
    ),
    Mutant(
        "an evicted engine serves",
        "mtpd/proxy/engines.py",
        "            if terms is Terms.SERVE and not plan.accept_offload:",
        "            if plan.accept_offload:",
        "a layer was evicted",
    ),
    Mutant(
        "no breaker",
        "mtpd/supervise/retry.py",
        "    if opened := breaker(memory, event.now):",
        "    if (opened := breaker(memory, event.now)) and memory.streak > 99:",
        "was started",
    ),
    Mutant(
        "delays without a bound",
        "mtpd/supervise/backoff.py",
        "min(FIRST_S * 2.0**doublings, LONGEST_S)",
        "FIRST_S * 8.0**doublings",
        "before its next start",
    ),
    Mutant(
        "memory that is not waited for",
        "mtpd/supervise/keeper.py",
        "        if before is None:  # it came",
        "        if before:\n            return None\n        if not before:  # it came",
        "",
    ),
    Mutant(
        "a place that is never given back",
        "mtpd/proxy/lane.py",
        "        self.post(Leave(ticket.id))",
        "        self.tick()",
        "",
    ),
    Mutant(
        "a turn of the card that is taken twice",
        "mtpd/supervise/keeper.py",
        "        if self._moving is None:  # who",
        "        if self._moving is not engine_id or True:  # who",
        "",
    ),
    Mutant(
        "a canary that is not waited for",
        "mtpd/supervise/check.py",
        "            speculates = await self.probe.check(",
        "            speculates = None\n            _ = self.probe.check(",
        "before its canary came back",
    ),
    Mutant(
        "an end without a stop",
        "mtpd/supervise/runner.py",
        '            self._post(Stop("mtpd ends"))\n',
        "",
        "",
    ),
)
QUICK = ("two engines on one seat", "a queue that nobody looks at", "no breaker")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "mutant", [m for m in MUTANTS if ALL or m.name in QUICK], ids=lambda mutant: mutant.name
)
def test_a_fault_in_the_core_is_found(mutant: Mutant, tmp_path: Path) -> None:
    for package in ("mtpd", "tuner", "tests/faults/sim", "tests/fakes", "docs"):
        shutil.copytree(
            ROOT / package,
            tmp_path / package,
            ignore=shutil.ignore_patterns("__pycache__", "*.gguf", "web", "images"),
        )
    file = tmp_path / mutant.file
    source = file.read_text()
    assert source.count(mutant.old) == 1, "the core is written otherwise now: so must the fault"
    file.write_text(source.replace(mutant.old, mutant.new))
    run = subprocess.run(
        [sys.executable, "-m", "tests.faults.sim", f"0-{WORLDS - 1}"],
        cwd=tmp_path,
        env=uncounted(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, f"nobody noticed: {run.stdout[-500:]}{run.stderr[-2000:]}"
    told = re.search(r"^SEED=(\d+): (.*)$", run.stdout, re.MULTILINE)
    assert told is not None, run.stdout[-2000:]
    assert mutant.finds in told.group(2)
    assert f"again: python -m tests.faults.sim {told.group(1)}" in run.stdout
