"""What is remembered of one model's live traffic, and its JSON. Pure.

The JSON is this version's own: one that cannot be read back is forgotten, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pydantic import TypeAdapter, ValidationError

from mtpd.types import Absent
from tuner.demand import Demand
from tuner.live import Live  # noqa: TC001 - a stored state resolves its hints
from tuner.moment import PolicyState
from tuner.types import Act, Arm  # noqa: TC001 - a stored state resolves its hints

__all__ = ["STATE_SCHEMA", "Remembered", "Said", "dump", "load"]

STATE_SCHEMA: Final = 1
"""Version of the JSON; grows when its shape changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the loop last said that it would do.

    Attributes:
        act: Switch or measure; None where it had changed its mind.
        arm: To which arm, or which one is in doubt.
        at_s: When, on the policy's clock.
    """

    act: Act | None
    arm: Arm | None
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """State of one model.

    Attributes:
        live: What its requests taught.
        policy: What the policy remembers.
        demand: How much is asked of it.
        calibration: The calibration that ``live`` starts from, "" for none.
        said: What was said last, in mode observe.
        start_s: Seconds that its last engine start took, or None.
        cache_s: Seconds that the last request would have waited without the prompt cache.
        by_pool: How much of it is asked for by the name of a pool.
    """

    live: Live
    policy: PolicyState = field(default_factory=PolicyState)
    demand: Demand = field(default_factory=Demand)
    calibration: str = ""
    said: Said | None = None
    start_s: float | None = None
    cache_s: float = 0.0
    by_pool: dict[str, Demand] = field(default_factory=dict)


_CODEC: Final = TypeAdapter(Remembered)


def dump(state: Remembered) -> str:
    """The JSON."""
    return _CODEC.dump_json(state).decode()


def load(text: str) -> Remembered | Absent:
    """The state, or why it cannot be read."""
    try:
        return _CODEC.validate_json(text)
    except (ValidationError, ValueError) as problem:
        return Absent(f"the remembered live traffic cannot be read: {problem}")
