"""``connect_s``: a program that takes no connection is given up in time."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import anyio
import pytest

from mtpd.proxy.outcomes import UpstreamLostError
from mtpd.proxy.upstream import EndpointUpstream
from mtpd.types import HttpEndpoint

MOST = 64


def fill(stack: ExitStack, server: socket.socket) -> None:
    """Connect until the kernel queues no more: who comes then waits for an answer."""
    for _ in range(MOST):
        client = stack.enter_context(socket.socket())
        client.settimeout(0.5)
        try:
            client.connect(server.getsockname())
        except TimeoutError:
            return
    pytest.fail(f"{MOST} connections were taken by a program that accepts none")


async def test_a_program_that_takes_no_connection_is_given_up() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        fill(stack, server)
        upstream = EndpointUpstream(HttpEndpoint(f"http://127.0.0.1:{server.getsockname()[1]}"))
        # The kernel itself tries for two minutes.
        with anyio.fail_after(30), pytest.raises(UpstreamLostError):
            async with upstream.open("POST", "/x", headers={}, data=b"{}", connect_s=0.1):
                pytest.fail("it was connected")
