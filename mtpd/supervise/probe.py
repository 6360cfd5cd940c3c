"""Whether an engine serves: health, the right process, and a canary that comes back.

Health alone proves little: an orphan can answer on the socket, and a hung device still
answers ``/health``. Residency is judged from the log, elsewhere.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import aiohttp
import anyio

from mtpd.engine.client import EngineClient, Health
from mtpd.errors import EngineError, UpstreamError
from mtpd.supervise import opaque
from mtpd.types import Absent, FailureClass, HttpEndpoint, UnixEndpoint, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mtpd.types import Endpoint, LaunchPlan, Reading
    from mtpd.views import Json

__all__ = ["EngineProbe"]

POLL_FIRST_S = 0.025
POLL_LONGEST_S = 0.25
CANARY_S = 60.0
SLOTS_S = 2.0
"""An engine that has just answered its canary has nothing else to do."""
LAST_WORDS_S = 1.0
"""A dying engine resets its connections first; its exit says more than the reset does."""

CANARY: dict[str, Json] = {
    "prompt": "Once upon a time",
    "n_predict": 4,
    "temperature": 0,
    "cache_prompt": False,
    "stream": False,
}
CANARIES: Mapping[str, tuple[str, dict[str, Json]]] = MappingProxyType(
    {
        "text": ("/completion", CANARY),
        "embedding": ("/embedding", {"content": "Once upon a time"}),
        "rerank": ("/v1/rerank", {"query": "Once", "documents": ["upon a time"]}),
    }
)
"""What an engine is asked first, by its purpose: one for embeddings answers no completion."""


class EngineProbe:
    """Asks over the engine's own endpoint."""

    def clear(self, endpoint: Endpoint) -> None:
        """Remove a socket that an earlier process left; raises EngineError for anything else."""
        if isinstance(endpoint, HttpEndpoint):
            opaque.refuse_taken(endpoint.url)
        if not isinstance(endpoint, UnixEndpoint):
            return
        path = Path(endpoint.path)
        try:
            if not stat.S_ISSOCK(path.lstat().st_mode):
                msg = f"{path} exists and is not a socket"
                hint = "remove it, or choose another runtime directory"
                raise EngineError(msg, failure=FailureClass.CONFIG, hint=hint)
            path.unlink()
        except FileNotFoundError:
            pass
        except OSError as error:
            msg = f"cannot remove the old socket {path}: {error.strerror}"
            raise EngineError(msg, failure=FailureClass.CONFIG) from error

    async def check(
        self,
        plan: LaunchPlan,
        *,
        pid: int,
        listening: anyio.Event,
        on_healthy: Callable[[], None],
    ) -> bool | None:
        """Return once the canary came back; raises EngineError when it will not.

        Returns:
            Whether its slots draft, or None where they do not say.
        """
        if plan.opaque is not None and isinstance(plan.endpoint, HttpEndpoint):
            await opaque.until_serving(plan.endpoint.url, plan.opaque.check)
            return None
        async with EngineClient(plan.endpoint) as client:
            await _healthy(client, listening)
            _same_process(await client.peer_pid(), pid)
            on_healthy()
            try:
                await client.ask(*CANARIES[plan.purpose], timeout_s=CANARY_S)
            except UpstreamError as error:
                await anyio.sleep(LAST_WORDS_S)
                late = isinstance(error.__cause__, TimeoutError)
                failure = FailureClass.HANG if late else FailureClass.CRASH
                msg = f"the canary failed: {error}"
                raise EngineError(msg, failure=failure, hint=error.hint) from error
            return await _speculates(client)

    async def fails(self, plan: LaunchPlan) -> bool:
        """Whether a completion is answered with an error; one that is late fails not."""
        try:
            async with EngineClient(plan.endpoint) as client:
                await client.ask(*CANARIES[plan.purpose], timeout_s=CANARY_S)
        except UpstreamError as error:
            return not isinstance(error.__cause__, TimeoutError)
        except (aiohttp.ClientError, OSError):
            return True
        return False

    async def answers(self, plan: LaunchPlan) -> bool:
        """Whether a question that goes through the request queue is answered.

        An opaque program is not asked: it may well do one thing at a time, and answer late.
        """
        if plan.opaque is not None:
            return True
        try:
            async with (
                EngineClient(plan.endpoint) as client,
                client.open("GET", "/slots") as response,
            ):
                await response.read()
        except (aiohttp.ClientError, OSError, UpstreamError):
            return False
        return True


async def _speculates(client: EngineClient) -> bool | None:
    """What ``/slots`` says; a build without that endpoint, or that field, says nothing."""
    slots: list[Json] = []
    with anyio.move_on_after(SLOTS_S), suppress(UpstreamError):
        slots = await client.slots()
    said = [slot.get("speculative") for slot in slots if isinstance(slot, dict)]
    known = [one for one in said if isinstance(one, bool)]
    return any(known) if known else None


async def _healthy(client: EngineClient, listening: anyio.Event) -> None:
    """Ask ever more rarely while it loads, and at once when the log says that it listens."""
    pause_s = POLL_FIRST_S
    while await client.health() is not Health.OK:
        if listening.is_set():
            await anyio.sleep(POLL_FIRST_S)
            continue
        with anyio.move_on_after(pause_s):
            await listening.wait()
        pause_s = min(pause_s * 1.5, POLL_LONGEST_S)


def _same_process(peer: Reading[int], pid: int) -> None:
    """Refuse an endpoint that another process serves; a wrapper's child is of our session."""
    match peer:
        case Value(value=found) if found != pid and _session(found) != pid:
            msg = f"process {found} answers on the engine's socket, not process {pid}"
            hint = "end that process; it is left from an earlier daemon or uses our directory"
            raise EngineError(msg, failure=FailureClass.CRASH, hint=hint)
        case Absent(reason=reason):
            msg = f"who answers on the engine's socket is not known: {reason}"
            raise EngineError(msg, failure=FailureClass.CRASH)
        case _:
            return


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
