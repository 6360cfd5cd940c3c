"""Which headers of an engine reach its client."""

from __future__ import annotations

from mtpd.proxy.headers import to_client


def test_a_body_that_came_compressed_is_said_to_be() -> None:
    came = {"content-type": "text/html", "content-encoding": "gzip", "set-cookie": "a=b"}
    assert to_client(came) == {"Content-Type": "text/html", "Content-Encoding": "gzip"}
