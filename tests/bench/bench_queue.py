"""What batching in the queue is worth: simulated days of two models on one device.

Run as ``python -m tests.bench.bench_queue``. The admission machine itself decides; loads
and requests take simulated time, so the figures are the same on every machine. It is where
the defaults of ``[server] batch_max_requests`` and ``batch_max_s`` come from.
"""

from __future__ import annotations

import heapq
import random
import statistics
import sys
from dataclasses import dataclass, field, replace

from mtpd.proxy import admission
from mtpd.proxy.admission_types import Admit, Arrive, Done, Event, Order, Ready, State, WantEngine

CHANGE_S = 10.0
USE_S = 4.0
REQUESTS = 2000
LOADS = ((0.06, "light"), (0.12, "busy"), (0.18, "heavy"))
"""Requests per second; the engine alone could do 0.25."""

ORDERS = (
    Order(batch_max_requests=0),
    *(
        Order(batch_max_requests=n, batch_max_s=s)
        for n in (4, 16)
        for s in (10.0, 20.0, 30.0, 60.0)
    ),
    Order(batch_max_requests=10_000, batch_max_s=1e9),
)


@dataclass
class Day:
    """One simulated run.

    Attributes:
        waits: Seconds from arrival to admission.
        changes: How often another engine was brought up.
    """

    order: Order
    state: State = field(init=False)
    events: list[tuple[float, int, Event]] = field(default_factory=list)
    arrived: dict[int, float] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    changes: int = 0
    count: int = 0

    def __post_init__(self) -> None:
        self.state = State(limit=10**9, timeout_s=1e12, order=self.order)

    def at(self, when: float, event: Event) -> None:
        """Have something happen."""
        self.count += 1
        heapq.heappush(self.events, (when, self.count, event))

    def run(self, rng: random.Random) -> None:
        """Until everything that happens has happened."""
        while self.events:
            now, _, event = heapq.heappop(self.events)
            if isinstance(event, Arrive):
                self.arrived[event.id] = now
            self.state, effects = admission.step(replace(self.state, now=now), event)
            for effect in effects:
                if isinstance(effect, Admit):
                    self.waits.append(now - self.arrived[effect.id])
                    self.at(now + rng.expovariate(1 / USE_S), Done(effect.id))
                elif isinstance(effect, WantEngine):
                    self.changes += 1
                    self.at(now + CHANGE_S, Ready(effect.profile, 1))


def simulate(order: Order, per_s: float) -> Day:
    """A Poisson stream over two models, one of them asked for three times as often."""
    rng = random.Random(7)  # noqa: S311 - a simulation
    day, now = Day(order), 0.0
    for number in range(REQUESTS):
        now += rng.expovariate(per_s)
        day.at(now, Arrive(number, "a" if rng.random() < 0.75 else "b", now))
    day.run(rng)
    return day


def main() -> None:
    """Print one table per load."""
    for per_s, name in LOADS:
        sys.stdout.write(
            f"\nqueue, {name}: {per_s:g} requests/s of {USE_S:g} s, a change takes {CHANGE_S:g} s\n"
            "requests  seconds  changes/100  wait mean  median     p95     max  (s)\n"
        )
        for order in ORDERS:
            day = simulate(order, per_s)
            waits = sorted(day.waits)
            sys.stdout.write(
                f"{order.batch_max_requests:8}  {order.batch_max_s:7g}  "
                f"{100 * day.changes / REQUESTS:11.1f}  {statistics.fmean(waits):9.1f}  "
                f"{statistics.median(waits):6.1f}  {waits[int(0.95 * len(waits))]:6.1f}  "
                f"{waits[-1]:6.1f}\n"
            )


if __name__ == "__main__":
    main()
