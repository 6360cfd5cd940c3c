"""`mtpd` that tells how much it holds: `python -m tests.fakes.counted FILE ARGS`.

SIGUSR1 has it collect its garbage and write the numbers of its asyncio tasks and of its objects,
but for those of rings, to FILE as JSON; SIGUSR2 has its loop stand still for ever. All else is
the daemon's command line.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.cli.start import mtpd

if TYPE_CHECKING:
    from types import FrameType

IN_RINGS = {"Line", "Sample", "GpuReading", "Envelope", "RequestFinished"}
"""What is kept by a number or by an age that a short run does not reach."""


def main() -> None:
    """Be the daemon."""
    file = Path(sys.argv.pop(1))

    def tell(number: int, frame: FrameType | None) -> None:
        gc.collect()
        objects = [one for one in gc.get_objects() if type(one).__name__ not in IN_RINGS]
        counts = {"tasks": len(asyncio.all_tasks()), "objects": len(objects)}
        whole = file.with_suffix(".new")
        whole.write_text(json.dumps(counts))
        whole.rename(file)

    def stand_still(number: int, frame: FrameType | None) -> None:
        threading.Event().wait()

    signal.signal(signal.SIGUSR1, tell)
    signal.signal(signal.SIGUSR2, stand_still)
    mtpd()


if __name__ == "__main__":
    main()
