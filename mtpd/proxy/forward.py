"""The data plane's handlers: find the model a request is for, and have it carried there.

Not covered: the life of a request once its model is known (``mtpd.proxy.carry``), and
authentication, Host and Origin checks (the application's middleware).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from mtpd.config.serving import BodyLimits
from mtpd.proxy import replies
from mtpd.proxy.body import Bodies
from mtpd.proxy.carry import Carrier
from mtpd.proxy.conditions import Conditions
from mtpd.proxy.endpoints import (
    ENDPOINTS,
    FORMS,
    HEALTH,
    MODEL_LISTS,
    PROPS,
    Dialect,
    Endpoint,
)
from mtpd.proxy.form_scan import FormScan, boundary_of
from mtpd.proxy.herald import TICK_S
from mtpd.proxy.open_requests import OpenRequests
from mtpd.proxy.passing import PREFIX, Passed, open_to_all, split
from mtpd.proxy.payload import Form, Whole
from mtpd.proxy.policy import examine
from mtpd.proxy.props import props
from mtpd.proxy.quotas import Quotas
from mtpd.proxy.relay import Order
from mtpd.proxy.route import BadBody, Names, Routed, UnknownModel, route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mtpd.clock import Clock
    from mtpd.events import RequestFinished
    from mtpd.proxy.carry import Board
    from mtpd.proxy.quarantine import Quarantine
    from mtpd.proxy.replies import ModelCard

__all__ = ["mount"]


class Front:
    """The handlers."""

    def __init__(
        self,
        *,
        board: Board,
        names: Callable[[], Names],
        models: Callable[[], Sequence[ModelCard]],
        on_finished: Callable[[RequestFinished], None],
        clock: Clock,
        instance: str,
        owns: Callable[[web.Request], bool],
        bodies: Bodies,
        conditions: Callable[[str], Conditions],
        limits: Callable[[], BodyLimits],
        tick_s: float,
        quotas: Quotas,
        quarantine: Quarantine,
        reload: Callable[[], Awaitable[object]],
        requests: OpenRequests,
    ) -> None:
        self._reload = reload
        self._board, self._names, self._models, self._owns = board, names, models, owns
        self._bodies, self._conditions, self._limits = bodies, conditions, limits
        self._headers = {**replies.SERVER, "X-Mtpd-Instance": instance}
        self._carrier = Carrier(
            board=board,
            on_finished=on_finished,
            clock=clock,
            headers=self._headers,
            tick_s=tick_s,
            quotas=quotas,
            quarantine=quarantine,
            requests=requests,
        )

    async def health(self, _: web.Request) -> web.Response:
        """Whether the daemon can serve; also while a model is loading."""
        if self._board.closed:
            return replies.error(
                503, "the daemon is stopping", kind="unavailable_error", code="stopping"
            )
        return web.json_response({"status": "ok"}, headers=self._headers)

    async def models(self, request: web.Request) -> web.Response:
        """Every model that can be asked for; ``?reload=1`` reads the configuration before.

        Raises:
            MtpdError: The configuration has errors; it stays as it was.
        """
        if request.query.get("reload") == "1":
            if not self._owns(request):
                return self._own(replies.no_reload())
            await self._reload()
        return self._own(replies.model_list(self._models(), self._board.engines()))

    async def props(self, request: web.Request) -> web.Response:
        """What the engine of ``?model=`` says of itself."""
        found = self._names().meaning(request.query.get("model", ""))
        if isinstance(found, UnknownModel):
            return self._own(replies.unknown_model(found))
        return self._own(await props(self._board, found.profile))

    async def relay(self, endpoint: Endpoint, request: web.Request) -> web.StreamResponse:
        """Pass a JSON request to the engine of its model."""
        with self._bodies.counted() as buffer:
            refused = await self._bodies.read(request, buffer)
            if refused is not None:
                return self._own(refused)
            outcome = route(bytes(buffer), self._names(), endpoint, self._limits())
            match outcome:
                case Routed():
                    order = Order(
                        target=endpoint.target,
                        payload=Whole(outcome.body),
                        dialect=endpoint.dialect,
                        light=endpoint.light,
                        traits=outcome.traits,
                        stream=outcome.stream and endpoint.streams,
                        conditions=self._conditions(outcome.profile),
                        why=outcome.why,
                        asked=outcome.asked,
                    )
                    return await self._carrier.carry(request, outcome.profile, order)
                case UnknownModel():
                    return self._own(replies.unknown_model(outcome))
                case BadBody():
                    return self._own(replies.bad_body(outcome))

    async def form(self, endpoint: Endpoint, request: web.Request) -> web.StreamResponse:
        """Pass a multipart form to the engine of its model, without reading all of it."""
        refused = self._bodies.refuse_coding(request)
        if refused is not None:
            return self._own(refused)
        boundary = boundary_of(request.headers.get("Content-Type", ""))
        if boundary is None:
            message = "the body must be sent with Content-Type: multipart/form-data; boundary=..."
            return self._own(replies.error(415, message, code="unsupported_media_type"))
        with self._bodies.counted() as buffer:
            form, scan = Form(request, self._bodies, buffer), FormScan(boundary)
            refused = await form.find_model(scan)
            if refused is not None:
                return self._own(refused)
            names = self._names()
            found = names.meaning(scan.model or "")
            if isinstance(found, UnknownModel):
                return self._own(replies.unknown_model(found))
            upstream = names.upstream.get(found.profile)
            if upstream is not None and scan.span is not None:
                form.rename(scan.span, upstream)
            order = Order(
                target=endpoint.target,
                payload=form,
                conditions=self._conditions(found.profile),
                why=found.why,
                asked=found.asked,
            )
            return await self._carrier.carry(request, found.profile, order)

    async def upstream(self, request: web.Request) -> web.StreamResponse:
        """Pass any request to the engine of the model that its path names."""
        passed = split(request.rel_url.raw_path, self._names())
        if not isinstance(passed, Passed):
            return self._own(replies.unknown_model(passed))
        if not passed.target:
            status = 301 if request.method in {"GET", "HEAD"} else 308
            where = {"Location": f"{request.rel_url.raw_path}/"}
            return self._own(web.Response(status=status, headers=where))
        endpoint = open_to_all(request.method, passed.target)
        if not self._owns(request):
            if (request.method, passed.target) == ("GET", "/props"):
                return self._own(await props(self._board, passed.profile))
            if endpoint is None:
                return self._own(replies.not_open(request.method, passed.target))
        conditions = self._conditions(passed.profile)  # a reload may take it away meanwhile
        with self._bodies.counted() as buffer:
            body = await self._body_for(endpoint, request, buffer)
            if isinstance(body, web.Response):
                return self._own(body)
            query = request.rel_url.raw_query_string
            order = Order(
                method=request.method,
                target=passed.target + (f"?{query}" if query else ""),
                payload=Whole(body),
                dialect=Dialect.PLAIN if endpoint is None else endpoint.dialect,
                light=endpoint is not None and endpoint.light,
                conditions=conditions,
                why=passed.why,
                asked=passed.asked,
            )
            return await self._carrier.carry(request, passed.profile, order)

    async def _body_for(
        self, endpoint: Endpoint | None, request: web.Request, buffer: bytearray
    ) -> bytes | web.Response:
        """What may be sent of a body of any type; all of it for the daemon's own user."""
        refused = self._bodies.refuse_coding(request)
        refused = refused or await self._bodies.read_any(request, buffer)
        if refused is not None:
            return refused
        if endpoint is None or not buffer or self._owns(request):
            return bytes(buffer)
        examined = examine(bytes(buffer), endpoint, self._limits())
        return replies.bad_body(examined) if isinstance(examined, BadBody) else examined.body

    def _own(self, response: web.Response) -> web.Response:
        response.headers.update(self._headers)
        return response


def mount(
    app: web.Application,
    *,
    board: Board,
    names: Callable[[], Names],
    models: Callable[[], Sequence[ModelCard]],
    on_finished: Callable[[RequestFinished], None],
    clock: Clock,
    instance: str,
    owns: Callable[[web.Request], bool] = lambda _request: False,
    bodies: Bodies | None = None,
    conditions: Callable[[str], Conditions] = lambda _profile: Conditions(),
    limits: Callable[[], BodyLimits] = BodyLimits,
    tick_s: float = TICK_S,
    quotas: Quotas | None = None,
    quarantine: Quarantine,
    reload: Callable[[], Awaitable[object]],
    requests: OpenRequests | None = None,
) -> None:
    """Add the inference endpoints, the list of models and the health check.

    Args:
        app: Where to.
        board: Leases engines.
        names: What model names mean at the moment of the call.
        models: The models to list.
        on_finished: Told of every request that was routed, once it has ended.
        clock: Measures durations.
        instance: Names this life of the daemon in every response.
        owns: Whether a request comes from the daemon's own user, who may reach all of an
            engine below ``/upstream``.
        bodies: Reads request bodies within its limits; the usual ones if left out.
        conditions: On which the requests for a profile are served.
        limits: What a body may hold.
        tick_s: Between two words to a client that waits, where it is told any.
        quotas: How many requests may be open at once; any number if left out.
        quarantine: Keeps away what has brought engines down.
        reload: Reads the configuration again, and returns once it is in force.
        requests: Shows those that are open; nobody asks for them if left out.
    """
    front = Front(
        board=board,
        names=names,
        models=models,
        on_finished=on_finished,
        clock=clock,
        instance=instance,
        owns=owns,
        bodies=bodies or Bodies(),
        conditions=conditions,
        limits=limits,
        tick_s=tick_s,
        quotas=quotas or Quotas(),
        quarantine=quarantine,
        reload=reload,
        requests=requests or OpenRequests(clock),
    )
    app.add_routes([web.post(e.path, partial(front.relay, e)) for e in ENDPOINTS])
    app.add_routes([web.post(e.path, partial(front.form, e)) for e in FORMS])
    app.add_routes([web.get(path, front.models) for path in MODEL_LISTS])
    app.add_routes([web.get(path, front.health) for path in HEALTH])
    app.add_routes([web.get(PROPS, front.props, allow_head=False)])
    app.add_routes([web.route("*", f"{PREFIX}{{tail:.+}}", front.upstream)])
