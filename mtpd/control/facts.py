"""What does not change during one life of the daemon. Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DaemonFacts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonFacts:
    """What does not change during one life of the daemon."""

    version: str
    pid: int
    started_at: str
    started: float
    listen: str
    control_socket: str
    state_dir: str
    engine_binary: str
