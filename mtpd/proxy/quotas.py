"""How many requests one caller, or one model, may have open at once; pure.

Open are those that wait and those that run, on whatever device. How many of one caller may
wait is the queue's to say (``mtpd.proxy.admission``), which knows who has to.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtpd.proxy.outcomes import RejectedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Quotas", "Visit"]


@dataclass(slots=True, eq=False)
class Visit:
    """A request from its arrival to its end.

    Attributes:
        caller: Name of the token that came with it, or None.
        runs: Whether an engine works on it.
    """

    profile: str
    caller: str | None
    runs: bool = False


class Quotas:
    """Counts the open requests.

    Args:
        per_caller: How many one caller may have; 0 for no limit. Asked anew each time.
        per_model: How many one profile may have; likewise.
    """

    def __init__(
        self,
        *,
        per_caller: Callable[[], int] = lambda: 0,
        per_model: Callable[[str], int] = lambda _profile: 0,
    ) -> None:
        self._per_caller, self._per_model = per_caller, per_model
        self._open: set[Visit] = set()

    @contextmanager
    def counted(self, visit: Visit) -> Iterator[None]:
        """Count a request while the block runs.

        Raises:
            RejectedError: It would be one too many; then it is not counted.
        """
        self._check(visit)
        self._open.add(visit)
        try:
            yield
        finally:
            self._open.discard(visit)

    def running(self, visit: Visit, kind: str) -> int:
        """How many run of those that stood in a visit's way; 0 where others did."""
        match kind:
            case "model":
                return sum(other.runs for other in self._of_model(visit))
            case "caller":
                return sum(other.runs for other in self._of_caller(visit))
            case _:
                return 0

    def _check(self, visit: Visit) -> None:
        limit, count = self._per_model(visit.profile), len(self._of_model(visit))
        if 0 < limit <= count:
            msg = f"{visit.profile} has as many requests open as it may ({limit})"
            raise RejectedError(msg, kind="model", retry_after_s=1)
        limit, count = self._per_caller(), len(self._of_caller(visit))
        if 0 < limit <= count:
            msg = f"the token {visit.caller} has as many requests open as it may ({limit})"
            raise RejectedError(msg, kind="caller", retry_after_s=1)

    def _of_model(self, visit: Visit) -> list[Visit]:
        return [other for other in self._open if other.profile == visit.profile]

    def _of_caller(self, visit: Visit) -> list[Visit]:
        """None without tokens: then everybody is one caller, and the queue is the limit."""
        if visit.caller is None:
            return []
        return [other for other in self._open if other.caller == visit.caller]
