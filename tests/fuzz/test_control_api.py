"""schemathesis over the control API of a running daemon, as an administrator.

Whatever is asked, nothing crashes, and every answer is as the description says, with no
member beside. ``MTPD_ENDURANCE=1`` (``make fuzz``) asks many times as often.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import requests
import schemathesis
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode, checks
from schemathesis.core.failures import FailureGroup

from mtpd.access import Scope
from mtpd.api.openapi_inference import TAG
from mtpd.clock import SystemClock
from mtpd.store.token_file import TokenFile
from tests.fakes.house import home
from tests.fakes.script import Script
from tests.fakes.serve import serve
from tests.fuzz.described import described

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = 300 if os.environ.get("MTPD_ENDURANCE") else 3
"""Of each route and each way: as the description says, and against it."""
LONGEST_LINE = 8000
NAMES = {
    "model": ["alpha", "beta", "first"],
    "subject": ["both", "alpha", "first"],
    "base": ["alpha"],
    "variant": ["beta"],
    "types": ["decision", "engine.transition"],
    "id": ["alpha", "first"],
}
CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.unsupported_method,
    checks.ignored_auth,
]
OPTIONS = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(0 if os.environ.get("MTPD_ENDURANCE") else 600),
]


@contextmanager
def running() -> Iterator[tuple[str, str]]:
    """A daemon in a process of its own; its address and an administrator's token."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(home(Script())) as place,
    ):
        tokens = TokenFile(place.directories.state, SystemClock())
        secret, _ = tokens.add("fuzz", frozenset({Scope.ADMIN}), expires=None)
        with portal.wrap_async_context_manager(serve(place)) as daemon:
            portal.call(daemon.until_serving)
            yield daemon.url, secret
            code = portal.call(daemon.end, signal.SIGTERM)
        crashes = [line for line in daemon.log.splitlines() if b"api.request_crashed" in line]
        assert (code, crashes) == (0, [])


@pytest.mark.parametrize("changing", [False, True], ids=["reads", "changes"])
def test_every_answer_is_as_described(changing: bool) -> None:  # noqa: FBT001
    schema: Any = schemathesis.openapi.from_dict(described(NAMES))
    asked, wrong = 0, list[str]()
    with running() as (url, secret), requests.Session() as session:
        for found in schema.get_all_operations():
            operation = found.ok()
            if TAG in operation.definition.raw["tags"]:
                continue  # it is the engine that answers
            if (operation.method.upper() != "GET") is not changing:
                continue
            for mode in GenerationMode:
                try:
                    asked += ask(operation, mode, url, secret, session)
                except (AssertionError, FailureGroup) as error:
                    wrong.append(f"{operation.label}: {error}\n{_causes(error)}")
        assert session.get(f"{url}/healthz", timeout=10).status_code == 200
    assert wrong == [], "\n\n".join(wrong)
    assert asked >= EXAMPLES * 5


def _causes(error: BaseException) -> str:
    found = getattr(error, "exceptions", ())
    return "\n".join(str(one) for one in found)


def ask(
    operation: Any, mode: GenerationMode, url: str, secret: str, session: requests.Session
) -> int:
    """Ask one route in one way; how often."""
    count = 0

    def once(case: Any) -> None:
        nonlocal count
        count += 1
        # Longer ones are refused while they are read, before there is a request to answer.
        assume(len(case.as_curl_command()) < LONGEST_LINE)
        headers = {"Authorization": f"Bearer {secret}"}
        response = case.call(base_url=url, session=session, headers=headers, timeout=20)
        assert response.status_code != 500, response.text
        case.validate_response(response, checks=CHECKS, headers=headers)
        if mode is GenerationMode.NEGATIVE:
            case.validate_response(response, checks=[checks.negative_data_rejection])

    strategy = operation.as_strategy(generation_mode=mode)
    # A route that takes nothing cannot be asked wrongly.
    with suppress(*([Unsatisfiable] if mode is GenerationMode.NEGATIVE else [])):
        OPTIONS(given(case=strategy)(once))()
    return count
