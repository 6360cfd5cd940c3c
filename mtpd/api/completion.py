"""Waits for the end of an operation, for clients that know no operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from mtpd.errors import ConflictError
from mtpd.events import Envelope, OperationChanged
from mtpd.operations import ENDED

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from mtpd.api.backend import Backend
    from mtpd.views import OperationView

__all__ = ["completed"]


async def completed(
    backend: Backend, begin: Awaitable[OperationView], *, drop: bool = True
) -> OperationView:
    """Begin an operation and wait until it is done.

    Args:
        backend: Runs it.
        begin: Begins it.
        drop: Whether it is dropped if it is left while it is queued; others may wait for it.

    Raises:
        ConflictError: It failed or was cancelled; the message says why.
    """
    async with backend.subscribe(None) as events:
        operation = await begin
        try:
            if operation.state not in ENDED:
                async for item in events:
                    changed = item.event if isinstance(item, Envelope) else None
                    if isinstance(changed, OperationChanged):
                        newer = changed.operation
                        operation = newer if newer.id == operation.id else operation
                    if operation.state in ENDED:
                        break
        finally:
            if drop and operation.state == "queued":
                # Who has left does not expect it to happen later, behind a long measurement.
                with anyio.CancelScope(shield=True):
                    await backend.cancel(operation.id)
    # A reader that was too slow, or a daemon that ends, has not seen the end.
    operation = await backend.operation(operation.id) or operation
    if operation.state != "done":
        error = operation.error or {}
        why = error.get("detail") or error.get("title") or f"it is {operation.state}"
        hint = error.get("hint")
        msg = f"{operation.kind}: {why}"
        raise ConflictError(msg, hint=hint if isinstance(hint, str) else None)
    return operation
