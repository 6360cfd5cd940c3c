"""Which requests an engine worked on at the same time as others; pure.

The time of a step that several requests share is not the time of one's own step.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Company"]


class Company:
    """Knows who is being worked on; asked once per request, when it has ended."""

    def __init__(self) -> None:
        self._present: dict[str, set[str]] = {}
        self._accompanied: set[str] = set()

    @contextmanager
    def of(self, engine_id: str, request_id: str) -> Iterator[None]:
        """An engine works on a request while the block runs."""
        present = self._present.setdefault(engine_id, set())
        present.add(request_id)
        if len(present) > 1:
            self._accompanied |= present
        try:
            yield
        finally:
            present.discard(request_id)
            if not present:
                del self._present[engine_id]

    def was_alone(self, request_id: str) -> bool:
        """Whether nobody was beside it; forgets it."""
        alone = request_id not in self._accompanied
        self._accompanied.discard(request_id)
        return alone
