"""How clients are served: where, times, sizes, what one that waits is told; frozen values.

A part of ``mtpd.config.model``, which offers them all. Times are seconds; 0 is no limit.
"""

from __future__ import annotations

import enum
import ipaddress
import math
from dataclasses import dataclass, field

__all__ = [
    "BodyLimits",
    "EngineTimeouts",
    "LoadingState",
    "ServerConfig",
    "ServerTimeouts",
    "bound",
]


def bound(seconds: float | None) -> float:
    """A configured time as a bound: infinite where it is 0 or not given."""
    return seconds or math.inf


class LoadingState(enum.StrEnum):
    """What a client that asked for a stream is told while its model is not ready."""

    OFF = "off"
    """Nothing: the answer keeps its real status."""

    COMMENTS = "comments"
    """SSE comments, which clients skip."""

    REASONING = "reasoning"
    """llama-swap's lines: ``reasoning_content`` of a chat, which clients show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTimeouts:
    """How long an engine may take; None follows ``[server.timeouts]``.

    Attributes:
        connect_s: To take a connection.
        first_byte_s: From the question to the first of the answer.
        idle_s: Without any more of the answer; the engine's pings are none of it.
        total_s: From the question to the end of the answer.
    """

    connect_s: float | None = None
    first_byte_s: float | None = None
    idle_s: float | None = None
    total_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTimeouts:
    """How long clients may take, and engines whose model says nothing else.

    Attributes:
        head_s: For the head of a request.
        body_idle_s: For a pause within a body.
        write_stall_s: Until there is room for more of an answer.
        keep_alive_s: Between two requests of a connection.
        connect_s: As in ``EngineTimeouts``, like those that follow.
        first_byte_s: Likewise.
        idle_s: Likewise.
        total_s: Likewise.
    """

    head_s: float = 10.0
    body_idle_s: float = 30.0
    write_stall_s: float = 30.0
    keep_alive_s: float = 75.0
    connect_s: float = 2.0
    first_byte_s: float = 0.0
    idle_s: float = 0.0
    total_s: float = 0.0

    def for_engine(self, own: EngineTimeouts) -> EngineTimeouts:
        """What a model says, and these where it says nothing."""
        return EngineTimeouts(
            connect_s=self.connect_s if own.connect_s is None else own.connect_s,
            first_byte_s=self.first_byte_s if own.first_byte_s is None else own.first_byte_s,
            idle_s=self.idle_s if own.idle_s is None else own.idle_s,
            total_s=self.total_s if own.total_s is None else own.total_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """What a request may hold.

    Attributes:
        body_mib: A JSON body.
        form_mib: A multipart form; 0 is no limit.
        held_mib: All bodies that wait or run together.
        max_tokens: Tokens that a request may ask for; 0 is no limit.
        max_choices: Answers to one request (``n``).
        remote_media: Whether an engine may be told to fetch images and recordings by URL.
    """

    body_mib: int = 64
    form_mib: int = 0
    held_mib: int = 256
    max_tokens: int = 0
    max_choices: int = 16
    remote_media: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where clients are answered, and how many may wait.

    Attributes:
        listen_host: Address of the data plane.
        listen_port: Its port; 0 lets the system choose.
        control_socket: Path of the control socket; None puts it into the runtime directory.
        max_waiting: Requests that may wait for an engine.
        queue_timeout_s: Seconds after which a waiting request gets 503.
        watch_config: Whether a configuration that was saved is read again by itself.
        ttl_s: Seconds without a request after which an engine is unloaded; 0 means never.
        preload: Models and pools that are loaded once the daemon serves, in this order.
        list_aliases: Whether ``/v1/models`` lists every alias as a model of its own.
        batch_max_requests: Requests for the serving model that may overtake one for another.
        batch_max_s: Seconds for which they may.
        priority_age_s: Seconds after which a waiting request counts as one priority higher.
        max_in_flight_per_token: Requests that one token may have open; 0 for no limit.
        poison_after: Deaths of its engine after which a request is refused; 0 for never.
        poison_hold_s: For how many seconds it is.
        max_waiting_per_token: Those of them that may wait per queue; 0 for no limit.
        hosts: Names beside the loopback's under which clients ask, in lower case; with a port
            where that is not the daemon's own.
        cors_origins: Of web pages that may use the data plane, in lower case.
        loading_state: What a client is told while its model is not ready.
        timeouts: How long clients and engines may take.
        limits: What a request may hold.
    """

    listen_host: str = "127.0.0.1"
    listen_port: int = 8080
    control_socket: str | None = None
    max_waiting: int = 64
    queue_timeout_s: float = 120.0
    watch_config: bool = False
    ttl_s: float = 0.0
    preload: tuple[str, ...] = ()
    list_aliases: bool = False
    batch_max_requests: int = 16
    batch_max_s: float = 30.0
    priority_age_s: float = 30.0
    max_in_flight_per_token: int = 0
    max_waiting_per_token: int = 0
    poison_after: int = 2
    poison_hold_s: float = 3600.0
    loading_state: LoadingState = LoadingState.OFF
    timeouts: ServerTimeouts = field(default_factory=ServerTimeouts)
    limits: BodyLimits = field(default_factory=BodyLimits)
    hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()

    @property
    def listen(self) -> str:
        """The address as it is written."""
        host = f"[{self.listen_host}]" if ":" in self.listen_host else self.listen_host
        return f"{host}:{self.listen_port}"

    @property
    def remote(self) -> bool:
        """Whether other machines can reach it."""
        return not ipaddress.ip_address(self.listen_host).is_loopback
