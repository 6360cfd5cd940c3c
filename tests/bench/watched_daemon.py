"""``mtpd`` with its own lag watch looking every 5 ms: ``watched_daemon.py PATH STACKS serve …``.

Writes one line per moment to PATH when it ends: monotonic seconds, lag in seconds, and what the lag
would have been had a processor been free for the loop's thread whenever it could run. With STACKS
other than 0, a thread looks at the loop's thread every 2 ms and writes to ``PATH.stacks`` where it
was while it stood still for longer than so many milliseconds: what blocks, by line.
"""

from __future__ import annotations

import asyncio
import collections
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mtpd.cli.mtpd import main
from mtpd.clock import SystemClock
from mtpd.lag import LagWatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

EVERY_S = 0.005
SCHEDSTAT = Path("/proc/thread-self/schedstat")
LOOK_S = 0.002
DEEP = 6
"""Frames that are written of a stack: the innermost, and those of ours."""
OURS = tuple(f"{Path(__file__).parents[2]}/{name}/" for name in ("mtpd", "tuner"))


class Record:
    """Every moment, and where the loop stood when it was late."""

    def __init__(self) -> None:
        self.moments: list[tuple[float, float, float]] = []
        self.waited_s = self.share = 0.0
        self.alive = time.monotonic()
        self.stacks: collections.Counter[str] = collections.Counter()

    def told(self, lag_s: float) -> None:
        """Take one."""
        now = time.monotonic()
        if now - self.alive > EVERY_S / 10:  # else of the same look as the one before
            waited_s = int(SCHEDSTAT.read_text().split()[1]) / 1e9
            self.share = min(1.0, (waited_s - self.waited_s) / (lag_s + EVERY_S))
            self.waited_s = waited_s
        self.alive = now
        self.moments.append((now, lag_s, lag_s * (1 - self.share)))

    def look(self, thread: int, late_s: float) -> None:
        """Sample the stack of a thread for ever while it is late."""
        while True:
            time.sleep(LOOK_S)
            if time.monotonic() - self.alive > late_s:
                frame = sys._current_frames().get(thread)
                if frame is not None:
                    self.stacks[_where(frame)] += 1

    def write(self, path: Path) -> None:
        """Write both down."""
        path.write_text("".join(f"{at:.6f} {lag:.6f} {own:.6f}\n" for at, lag, own in self.moments))
        found = [f"{count} looks\n{where}\n" for where, count in self.stacks.most_common(40)]
        path.with_name(f"{path.name}.stacks").write_text("\n".join(found))


def _where(frame: FrameType | None) -> str:
    places, innermost = list[str](), frame
    while frame is not None and len(places) < DEEP:
        code = frame.f_code
        if frame is innermost or code.co_filename.startswith(OURS):
            places.append(f"  {code.co_filename}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return "\n".join(places)


class Loop(asyncio.SelectorEventLoop):
    """A loop that is looked at as long as it runs."""

    record = Record()
    late_ms = 0.0

    def run_forever(self) -> None:
        """Run, and look."""
        with self._watched():
            super().run_forever()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        if self.late_ms:
            asked = (threading.get_ident(), self.late_ms / 1000)
            threading.Thread(target=self.record.look, args=asked, daemon=True).start()
        watch = LagWatch(told=self.record.told, clock=SystemClock(), every_s=EVERY_S)
        with watch.watching(self):
            yield


class Policy(asyncio.DefaultEventLoopPolicy):
    """Makes such loops."""

    _loop_factory = Loop


if __name__ == "__main__":
    where, Loop.late_ms = Path(sys.argv[1]), float(sys.argv[2])
    asyncio.set_event_loop_policy(Policy())  # type: ignore[deprecated]
    del sys.argv[1:3]
    try:
        main()
    finally:
        Loop.record.write(where)
