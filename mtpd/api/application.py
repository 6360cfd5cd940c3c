"""Control plane and data plane in one application."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aiohttp import web

from mtpd.api import router_mode, routes, swap
from mtpd.api.auth import Policy, owns
from mtpd.api.completion import completed
from mtpd.control.models import cards
from mtpd.control.names import names
from mtpd.proxy import forward
from mtpd.proxy.body import Bodies, Bounds
from mtpd.proxy.conditions import conditions
from mtpd.proxy.quotas import Quotas

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from aiohttp.typedefs import Handler

    from mtpd.api.backend import Backend
    from mtpd.api.gate import Gate
    from mtpd.clock import Clock
    from mtpd.config.live import Configuration
    from mtpd.control.choices import Choices
    from mtpd.engine.client import EngineClient
    from mtpd.events import RequestFinished
    from mtpd.logfeed import LogFeed
    from mtpd.proxy.open_requests import OpenRequests
    from mtpd.proxy.quarantine import Quarantine
    from mtpd.proxy.switch import Switchboard

__all__ = ["application"]


def application(
    backend: Backend,
    *,
    config: Configuration,
    choices: Choices,
    board: Switchboard[EngineClient],
    feed: LogFeed,
    metrics: Handler,
    on_finished: Callable[[RequestFinished], None],
    clock: Clock,
    instance: str,
    gate: Gate,
    quarantine: Quarantine,
    public: Container[str] = (),
    requests: OpenRequests,
) -> web.Application:
    """Everything that is served, on either listener.

    Args:
        backend: Answers the control API.
        config: Names and facts of the models.
        choices: What pools stand for.
        board: Leases engines.
        feed: The log lines.
        metrics: Answers ``GET /metrics``.
        on_finished: Told of every relayed request once it has ended.
        clock: Measures durations.
        instance: Names this life of the daemon in every response.
        gate: Asks for tokens over TCP.
        quarantine: Keeps away what has brought engines down.
        public: Paths that others mount and that are open to everybody.
        requests: Shows those that are open.
    """
    app = web.Application()
    routes.mount(
        app,
        backend,
        auth=Policy(
            daemon_uid=os.getuid(),
            daemon_gid=os.getgid(),
            hosts=lambda: config.server.hosts,
            origins=lambda: config.server.cors_origins,
        ),
        metrics=metrics,
        others=(*swap.routes(feed, board.plans, config), *router_mode.routes(config)),
        gate=gate,
        public=public,
    )
    forward.mount(
        app,
        board=board,
        names=lambda: names(config, choices, board.serving, board.engines),
        models=lambda: cards(config, choices, board.engines()),
        on_finished=on_finished,
        clock=clock,
        instance=instance,
        owns=owns,
        bodies=Bodies(lambda: Bounds.of(config.server.limits, config.server.timeouts)),
        limits=lambda: config.server.limits,
        conditions=lambda profile: conditions(config.now, profile),
        quarantine=quarantine,
        requests=requests,
        reload=lambda: completed(backend, backend.reload(idempotency_key=None), drop=False),
        quotas=Quotas(
            per_caller=lambda: config.server.max_in_flight_per_token,
            per_model=lambda profile: _limit(config, profile),
        ),
    )
    return app


def _limit(config: Configuration, profile: str) -> int:
    """How many requests a model takes at once; any number of one that was just removed."""
    found = config.profiles.get(profile)
    return 0 if found is None else found.concurrency_limit
