"""On which conditions the requests for a model are served, as configured; pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mtpd.config.model import EngineTimeouts, LoadingState, ServerTimeouts

if TYPE_CHECKING:
    from mtpd.config.model import Config

__all__ = ["Conditions", "conditions"]

WRITE_STALL_S = ServerTimeouts().write_stall_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Of one model.

    Attributes:
        shown: What clients see it called; "" for the name of its profile.
        engine: How long its engine may take.
        write_stall_s: How long a client may take nothing of its answer; 0 is no limit.
        loading: What a client is told while the model is not ready.
    """

    shown: str = ""
    engine: EngineTimeouts = field(default_factory=EngineTimeouts)
    write_stall_s: float = WRITE_STALL_S
    loading: LoadingState = LoadingState.OFF


def conditions(config: Config, profile: str) -> Conditions:
    """What the model's own table says, else ``[server]``."""
    server, model = config.server, config.profiles[profile]
    return Conditions(
        shown=model.shown_name,
        engine=server.timeouts.for_engine(model.timeouts),
        write_stall_s=server.timeouts.write_stall_s,
        loading=server.loading_state if model.loading_state is None else model.loading_state,
    )
