"""Note 002's model, slots and context, and a card for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mtpd.config.model import Fit, HardwareProfile
from mtpd.control import memory
from mtpd.control.memory import Budget, Shape
from mtpd.types import NotApplicable
from tests.unit.control.made import profile
from tuner.memory import QWEN35_27B_B2, assumed

if TYPE_CHECKING:
    from mtpd.config.model import Profile
    from mtpd.control.memory import MemoryForecast

MIB = 2**20
CARD = HardwareProfile(
    name="card",
    description="a card",
    isa="gfx906",
    vram_mib=16368,
    power_cap_w=None,
    gate_edge_c=None,
    row_cost=None,
    row_cost_source=None,
    drafting_note=None,
)
NO_CARD = NotApplicable("there is no GPU")
SHAPE = Shape(geometry=QWEN35_27B_B2, calibration=assumed(QWEN35_27B_B2))


def big(**changes: Any) -> Profile:
    """Note 002's model, slots and context."""
    options: dict[str, Any] = {
        "context": 4096,
        "slots": 2,
        "kv_type": "q8_0",
        "draft_kv_type": "f16",
        "fit": Fit.ENGINE,
        "max_depth": 5,
    }
    return profile("big", **{**options, **changes})


def on_card(which: Profile, free_mib: int | None = 16368, shape: Any = SHAPE) -> MemoryForecast:
    free = None if free_mib is None else free_mib * MIB
    budget = Budget(free_bytes=free, headroom_bytes=256 * MIB, source="a test")
    margin = memory.margin_bytes(which, None, 256)
    return memory.forecast(which, shape, budget, margin_bytes=margin)
