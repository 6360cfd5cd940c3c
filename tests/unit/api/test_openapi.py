"""The description of the API: valid, whole, and the one in docs/openapi.json."""

from __future__ import annotations

import dataclasses
import http.client
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from mtpd import (
    explanation_views,
    history_views,
    live_views,
    log_views,
    quality_views,
    report_views,
    views,
)
from mtpd.api import openapi, schema
from mtpd.api.json_schema import Components, Shape, attributes_of, closed, document_of
from mtpd.api.routes import PREFIX, ROUTES
from mtpd.events import EVENT_TYPES
from mtpd.gpu import views as gpu_views
from mtpd.proxy.endpoints import ENDPOINTS, FORMS, HEALTH, MODEL_LISTS, PROPS
from tests.fakes.backend import ScriptedBackend, served_in_thread
from tests.unit.api.described import DESCRIPTION, against, misfits, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.api.row import Route

GOLDEN = Path(__file__).parents[3] / "docs" / "openapi.json"
ASKED = {
    f"{PREFIX}/models/{{id}}": "default",
    f"{PREFIX}/operations/{{id}}": "op-0001",
    f"{PREFIX}/decisions/{{id}}": "16",
}
QUERIES = {
    f"{PREFIX}/perplexity/comparison": "?base=a&variant=b",
    f"{PREFIX}/recipes/b2": "?model=default",
}


def test_it_is_an_openapi_document() -> None:
    assert list(OpenAPIV31SpecValidator(DESCRIPTION).iter_errors()) == []


def test_it_is_the_one_in_the_documentation() -> None:
    text = json.dumps(DESCRIPTION, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("MTPD_WRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8"), "renew it with MTPD_WRITE_GOLDEN=1"


def test_every_route_is_in_it_and_nothing_else() -> None:
    described = {
        (method.upper(), path) for path, item in DESCRIPTION["paths"].items() for method in item
    }
    rows = {(r.method, path_of(r)) for r in ROUTES} | {("GET", openapi.METRICS)}
    relayed = {("POST", one.path) for one in (*ENDPOINTS, *FORMS)}
    read = {("GET", path) for path in (*MODEL_LISTS, *HEALTH, PROPS)}
    assert described == rows | relayed | read
    ids = [one["operationId"] for item in DESCRIPTION["paths"].values() for one in item.values()]
    assert len(set(ids)) == len(ids)


def test_every_view_and_every_event_is_in_it() -> None:
    known = set(DESCRIPTION["components"]["schemas"])
    for module in (
        views,
        live_views,
        history_views,
        log_views,
        quality_views,
        report_views,
        explanation_views,
        gpu_views,
    ):
        named = {name for name in module.__all__ if name.endswith("View")}
        assert named - known == set(), module
    stream = DESCRIPTION["paths"][f"{PREFIX}/events"]["get"]["responses"]["200"]["content"]
    told = set(stream["text/event-stream"]["x-mtpd-events"])
    assert told == {*EVENT_TYPES, "stream.open", "stream.reset", "stream.dropped"}


def test_every_member_of_a_request_is_explained() -> None:
    for route in ROUTES:
        if route.request is not None:
            assert set(attributes_of(route.request)) == set(route.request.model_fields), route.path


def test_parameters_have_their_bounds() -> None:
    given = {
        one["name"]: one
        for one in DESCRIPTION["paths"][f"{PREFIX}/measurements"]["get"]["parameters"]
    }
    assert given["limit"]["schema"] == {
        "type": "integer", "minimum": 1, "maximum": schema.MAX_LIMIT, "default": 200,
    }  # fmt: skip
    assert given["depth"]["schema"] == {"type": "integer", "minimum": 0, "maximum": 64}
    assert given["id"]["schema"]["type"] == "array"
    number = DESCRIPTION["paths"][f"{PREFIX}/decisions/{{id}}"]["get"]["parameters"][0]
    assert number["schema"]["maximum"] == 10**18 - 1


def _examples(part: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(part, dict):
        if "example" in part and "schema" in part:
            yield part["schema"], part["example"]
        for example in part.get("examples", []):
            yield part, example
        for value in part.values():
            yield from _examples(value)
    elif isinstance(part, list):
        for value in part:
            yield from _examples(value)


def test_every_example_fits_its_schema() -> None:
    found = list(_examples(DESCRIPTION))
    assert len(found) > 10
    assert [against(shape, example) for shape, example in found if against(shape, example)] == []


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HealthView(views.HealthView):
    """That the daemon runs, and something new."""

    news_bytes: int


def test_it_changes_when_a_view_changes() -> None:
    def changed(route: Route) -> Route:
        return dataclasses.replace(route, response=HealthView) if "healthz" in route.path else route

    made: Any = openapi.document([changed(route) for route in ROUTES])
    shown = made["components"]["schemas"]["HealthView"]
    assert made != DESCRIPTION
    assert shown["required"] == ["status", "news_bytes"]
    assert shown["properties"]["news_bytes"] == {"type": "integer", "description": "Unit: bytes."}


def test_a_member_that_is_not_documented_is_found() -> None:
    route = next(r for r in ROUTES if r.path == "/healthz")
    body: Any = {"status": "ok"}
    assert misfits(route, 200, "application/json", body) == []
    assert misfits(route, 200, "application/json", {**body, "more": 1})
    assert misfits(route, 200, "application/json", {})
    assert misfits(route, 200, "text/plain", body)
    assert misfits(route, 418, "application/json", body)


def test_the_published_schema_lets_later_members_through() -> None:
    shown = Draft202012Validator(document_of(Shape(view=views.HealthView)))
    assert shown.is_valid({"status": "ok", "later": 1})
    assert not Draft202012Validator(closed(document_of(Shape(view=views.HealthView)))).is_valid(
        {"status": "ok", "later": 1}
    )


def test_two_views_of_one_name_are_refused() -> None:
    made = Components("#/")
    made.add("A", {"type": "string"})
    with pytest.raises(ValueError, match="two schemas A"):
        made.add("A", {"type": "integer"})
    made.of(views.HealthView)
    with pytest.raises(ValueError, match="two views HealthView"):
        made.of(HealthView)


@pytest.mark.parametrize("kind", [bytes, set[int], complex])
def test_what_has_no_place_in_a_view_has_no_schema(kind: Any) -> None:
    with pytest.raises(TypeError, match="a view may not hold"):
        Components("#/").of(kind)


def test_every_answer_of_the_scripted_daemon_fits(tmp_path: Path) -> None:
    with served_in_thread(ScriptedBackend(), tmp_path / "s") as served:
        for route in ROUTES:
            path = path_of(route)
            if route.method != "GET" or path.endswith(("/events", "/operations/{id}")):
                continue
            asked = path.replace("{id}", ASKED.get(path, "")) + QUERIES.get(path, "")
            connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
            try:
                connection.request("GET", asked)
                answer = connection.getresponse()
                body = json.loads(answer.read())
            finally:
                connection.close()
            media_type = answer.headers.get_content_type()
            assert (answer.status, misfits(route, answer.status, media_type, body)) == (200, [])
