"""What may be written of the daemon itself: its listeners, engines, card, pools and groups.

Part of ``mtpd.config.schema``.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mtpd.config.schema_words import (
    DAY_S,
    Limit,
    LoadingWord,
    OffloadWord,
    Patience,
    Table,
    Text,
    Threads,
    Ttl,
)

__all__ = [
    "BudgetTable",
    "EngineTable",
    "GroupTable",
    "LimitsTable",
    "PoolTable",
    "ServerTable",
    "TimeoutsTable",
    "TuningTable",
]


class TimeoutsTable(Table):
    """``[server.timeouts]``; 0 is no limit.

    Attributes:
        head_s: Time for the whole head of a request, from its first byte or from the connection on;
            then the connection ends.
        body_idle_s: Time for a pause within a body; then 408.
        write_stall_s: How long a client may take nothing of its answer before it is disconnected.
        keep_alive_s: How long a connection may be idle between two requests.
        connect_s: Time until an engine takes the connection; then 502.
        first_byte_s: Time from the question to the first of the answer; then 504. The engine's
            pings are no part of an answer, and the whole of an answer that is not streamed comes at
            its end: a long prompt is silent for minutes, so there is no limit by default.
        idle_s: Time without any more of an answer that has begun; the stream then ends in an error
            event.
        total_s: Time from the question to the end of the answer, likewise.
    """

    head_s: Limit = 10.0
    body_idle_s: Limit = 30.0
    write_stall_s: Limit = 30.0
    keep_alive_s: Limit = 75.0
    connect_s: Limit = 2.0
    first_byte_s: Limit = 0.0
    idle_s: Limit = 0.0
    total_s: Limit = 0.0


class LimitsTable(Table):
    """``[server.limits]``.

    Attributes:
        body_mib: Size of a JSON body; larger ones get 413.
        form_mib: Size of a multipart form, 0 without a limit: it is passed on while it arrives, and
            held by nobody.
        held_mib: Size of all bodies that wait or run together; the next one gets 503.
        max_tokens: Tokens that one request may ask for, 0 without a limit. A request that names no
            number, or an endless one, gets this one.
        max_choices: Answers that one request may ask for (`n`).
        remote_media: Whether engines may be told to fetch images and recordings by URL; otherwise
            only `data:` URLs are taken, as an engine would fetch from your own network, too.
    """

    body_mib: int = Field(default=64, ge=1, le=4096)
    form_mib: int = Field(default=0, ge=0, le=1_048_576)
    held_mib: int = Field(default=256, ge=1, le=1_048_576)
    max_tokens: int = Field(default=0, ge=0, le=16_777_216)
    max_choices: int = Field(default=16, ge=1, le=1024)
    remote_media: bool = False


class ServerTable(Table):
    """``[server]``.

    Attributes:
        listen: `ADDRESS:PORT` where clients are answered. An address that other machines reach
            needs `hosts` and an access token (docs/security.md#tokens), or the daemon does not
            start (78). Port 0 lets the system choose. Where systemd has opened the sockets
            (docs/systemd.md), its socket unit says where.
        control_socket: Path where `mtpctl` connects; where systemd has opened the sockets, its
            socket unit says where. Unset: in the runtime directory.
        max_waiting: Requests that may wait while an engine starts or switches; the next one gets
            503. Models that may run beside others have queues of their own
            (docs/configuration.md#groupsname), of this length each.
        queue_timeout_s: How long a request waits before it gets 503 with `Retry-After`.
        watch_config: Read the configuration again by itself when a file of it was saved; else
            SIGHUP or `mtpctl reload` does. See docs/configuration.md#reload.
        ttl_s: An engine that no request asks for is unloaded after so long; 0 means never. See
            docs/configuration.md#unloading-idle-models.
        preload: Models and pools that are loaded once the daemon serves, one after the other. One
            that cannot be loaded is told in the log and the journal (`act` `load`), and the next
            one is tried; one whose place clients use by then is left out.
        list_aliases: Whether `/v1/models` lists every alias as a model of its own, for programs
            that let people pick from the list.
        batch_max_requests: While a model serves, so many requests for it may overtake one that
            waits for another model; 0 keeps the order of arrival. See docs/data_plane.md#the-queue.
        batch_max_s: For how long, at most, they may.
        priority_age_s: A waiting request counts as one priority higher each time it has waited so
            long.
        hosts: Names and addresses (`NAME` or `NAME:PORT`), beside the loopback's, under which
            clients ask: every other `Host` header is refused. Without a port the daemon's own is
            meant, or none at all, as a reverse proxy passes it on. `*` does not exist.
        cors_origins: Web pages of other origins that may use the data plane, exactly as a browser
            sends them, e.g. `"http://localhost:3000"` or `"chrome-extension://ID"`; see
            docs/security.md#web-pages. `*` does not exist.
        max_in_flight_per_token: So many requests of one access token may be open at once, running
            or waiting; the next one gets 429 `rate_limit_exceeded`. 0: no limit. See
            docs/security.md.
        max_waiting_per_token: And so many of them may wait, per queue as with `max_waiting`.
        poison_after: A request during which its engine has died so often is not tried again. 0: it
            always is. At 1 every request that ran is refused, whichever it was. See
            docs/data_plane.md#requests-that-bring-engines-down.
        poison_hold_s: How long such a request is refused, unless the daemon is started again.
        loading_state: What a client that asked for a stream is told while its model is not ready,
            from the second second on: nothing, SSE comments, or llama-swap's `reasoning_content`
            lines (chat completions only). A model may say otherwise. Whoever is told something has
            a response that has begun with 200: a load that fails then is told by an error event
            instead of a 503. See docs/data_plane.md#while-a-model-loads.
        timeouts: How long clients and engines may take.
        limits: What a request may hold.
    """

    listen: Text = "127.0.0.1:8080"
    control_socket: Text | None = None
    max_waiting: int = Field(default=64, ge=0, le=100_000)
    queue_timeout_s: float = Field(default=120.0, gt=0.0, le=DAY_S)
    watch_config: bool = False
    ttl_s: Ttl = 0.0
    preload: list[Text] = Field(default_factory=list)
    list_aliases: bool = False
    batch_max_requests: int = Field(default=16, ge=0, le=100_000)
    batch_max_s: float = Field(default=30.0, ge=0.0, le=DAY_S)
    priority_age_s: float = Field(default=30.0, ge=1.0, le=DAY_S)
    hosts: list[Text] = Field(default_factory=list)
    cors_origins: list[Text] = Field(default_factory=list)
    max_in_flight_per_token: int = Field(default=0, ge=0, le=100_000)
    max_waiting_per_token: int = Field(default=0, ge=0, le=100_000)
    poison_after: int = Field(default=2, ge=0, le=100)
    poison_hold_s: float = Field(default=3600.0, gt=0.0, le=30 * DAY_S)
    loading_state: LoadingWord = "off"
    timeouts: TimeoutsTable = Field(default_factory=TimeoutsTable)
    limits: LimitsTable = Field(default_factory=LimitsTable)


class EngineTable(Table):
    """``[engine]``.

    Attributes:
        binary: `"auto"`, `"embedded"`, a name or a path. `auto`: `llama-server` on the `PATH`, else
            the embedded engine, else none if every model is another program
            (docs/configuration.md#other-programs).
        tools_dir: Folder of `llama-perplexity`, `llama-bench` and `llama-quantize`; see
            docs/quality.md. Unset: beside the configured `llama-server`, else on the `PATH`.
        threads: Threads of engines whose profile names none. More than the free cores makes the
            engine collapse. Unset: the engine decides.
        extra_env: Variables for engines, which otherwise start with an environment of their own.
            Allowed: `HIP_*`, `ROCR_*`, `HSA_*` (not `HSA_TOOLS_LIB`), `GPU_*`,
            `CUDA_VISIBLE_DEVICES`, `GGML_VK_VISIBLE_DEVICES`, `LD_LIBRARY_PATH`.
        load_stall_s: A load that logs nothing for so long counts as stuck.
        ready_timeout_s: A load that takes longer has failed, whatever it logs. Unset: 1800, and 120
            for other programs.
        stop_timeout_s: How long an engine may take to end: SIGTERM, again after half of it, SIGKILL
            at its end.
    """

    binary: Text = "auto"
    tools_dir: Text | None = None
    threads: Threads | None = None
    extra_env: dict[str, str] = Field(default_factory=dict)
    load_stall_s: float = Field(default=120.0, ge=1.0, le=DAY_S)
    ready_timeout_s: Patience | None = None
    stop_timeout_s: Patience = 4.0


class BudgetTable(Table):
    """``[budget]``.

    Attributes:
        hardware: The hardware profile of this machine (docs/configuration.md#hardware-profiles).
            Unset: none.
        headroom_mib: Device memory that stays free beside an engine.
    """

    hardware: Text | None = None
    headroom_mib: int = Field(default=256, ge=0, le=1_048_576)


class TuningTable(Table):
    """``[tuning]``.

    Attributes:
        mode: `observe`: learn from live traffic and say what would be done; `idle`: also switch the
            depth, restart and measure again while nobody asks; `off`: learn only. See docs/live.md.
        min_idle_s: Time without a request before the daemon switches by itself; before it measures,
            ten times as long.
        min_dwell_s: Time between two restarts that the daemon makes by itself.
        max_restarts_per_day: Engine starts that it may make by itself in any 24 hours, restarts
            after a crash included.
    """

    mode: Literal["off", "observe", "idle"] = "observe"
    min_idle_s: float = Field(default=120.0, ge=0.0, le=DAY_S)
    min_dwell_s: float = Field(default=1800.0, ge=0.0, le=30 * DAY_S)
    max_restarts_per_day: int = Field(default=6, ge=0, le=10_000)


class PoolTable(Table):
    """``[pools.NAME]``.

    Attributes:
        members: Names of models, at least one; earlier ones win ties.
        objective: What to prefer, see docs/configuration.md#poolsname.
        require_tags: Only members with all of these tags qualify. At least one member has to.
        offload: Whether a member that does not lie wholly in device memory qualifies. Its own
            profile has to accept that, too, or no depth of it is served so.
        min_context: A member qualifies only if one request can hold so many: its `context` over its
            `slots`. At least one member has to. Unset: no bound.
        quality_bound: A member qualifies only if its perplexity is at most so many times the lowest
            comparable one of those that meet the rest, e.g. `1.05`. A member without a comparable
            perplexity does not. Unset: no bound.
    """

    members: list[Text] = Field(min_length=1)
    objective: Literal["balanced", "speed", "quality", "efficiency"] = "balanced"
    require_tags: list[Text] = Field(default_factory=list)
    offload: OffloadWord = "refuse"
    min_context: int | None = Field(default=None, ge=1, le=16_777_216)
    quality_bound: float | None = Field(default=None, ge=1.0, le=100.0)


class GroupTable(Table):
    """``[groups.NAME]``.

    Attributes:
        members: Names of models, at least one; a model is in one group at most.
        swap: Whether one engine of the group runs at a time; else all of them may run together.
        exclusive: Whether bringing a member up unloads the engines of other groups. Bringing up a
            member of a group that is not exclusive leaves the others alone, whatever they say.
        persistent: Whether its engines stay when others come: they are unloaded neither for an
            exclusive group nor for their memory.
    """

    members: list[Text] = Field(min_length=1)
    swap: bool = True
    exclusive: bool = True
    persistent: bool = False
