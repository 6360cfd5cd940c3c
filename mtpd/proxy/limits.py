"""What is configured about the queue, as far as the switchboard needs it; pure."""

from __future__ import annotations

from typing import Protocol

from mtpd.proxy.admission_types import Order

__all__ = ["Limits", "order_of"]


class Limits(Protocol):
    """How many requests may wait, how long, and in which order; ``ServerConfig`` has them."""

    @property
    def max_waiting(self) -> int:
        """Requests that may wait per seat."""

    @property
    def queue_timeout_s(self) -> float:
        """Seconds each may wait."""

    @property
    def batch_max_requests(self) -> int:
        """Requests for the serving model that may overtake one for another."""

    @property
    def batch_max_s(self) -> float:
        """Seconds for which they may."""

    @property
    def priority_age_s(self) -> float:
        """Seconds after which a waiter counts as one priority higher."""

    @property
    def max_waiting_per_token(self) -> int:
        """Requests of one token that may wait per device; 0 for no limit."""


def order_of(limits: Limits) -> Order:
    """Who may overtake whom, and how many of one caller may wait."""
    return Order(
        batch_max_requests=limits.batch_max_requests,
        batch_max_s=limits.batch_max_s,
        age_s=limits.priority_age_s,
        max_waiting_per_caller=limits.max_waiting_per_token,
    )
