"""The documentation names every route, every problem and every event."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mtpd.api import auth, problem, routes
from mtpd.api.auth import Scope
from mtpd.events import EVENT_TYPES
from tuner.types import Act

DOCS = Path(__file__).parents[3] / "docs"
HTTP = (DOCS / "http_api.md").read_text(encoding="utf-8")


def test_the_table_of_routes_is_the_documented_one() -> None:
    documented = re.findall(r"^\| (GET|POST|DELETE) \| `([^`]+)` \| ([^|]+) \|", HTTP, re.MULTILINE)
    mounted = [
        (route.method, re.sub(r"\{id:[^}]*\}+", "{id}", route.path), route.summary)
        for route in routes.ROUTES
    ]
    assert documented == mounted


@pytest.mark.parametrize("route", routes.ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_what_changes_nothing_is_a_get(route: routes.Route) -> None:
    assert (route.scope is Scope.READ) == (route.method == "GET")
    assert (route.status == 202) == (route.method == "POST")


def test_what_a_request_takes_is_documented() -> None:
    for route in routes.ROUTES:
        path = re.sub(r"\{id:[^}]*\}+", "{id}", route.path)
        line = next(
            line for line in HTTP.splitlines() if line.startswith(f"| {route.method} | `{path}`")
        )
        fields = {} if route.request is None else route.request.model_fields
        expected = {name if field.is_required() else f"{name}?" for name, field in fields.items()}
        assert set(re.findall(r"`([a-z_]+\??)`", line.rsplit("|", 2)[1])) == expected


def test_every_problem_is_documented() -> None:
    sources = Path(auth.__file__).parent.glob("*.py")
    slugs = {slug for p in sources for slug in re.findall(r'slug="([a-z-]+)"', p.read_text())}
    slugs |= {slug for _, slug, _, _ in problem._KINDS} - {"unreachable"}
    slugs |= {"invalid-body", "invalid-query"}
    assert {slug for slug in slugs if f"`{slug}`" not in HTTP} == set()


def test_every_event_is_documented() -> None:
    kinds = set(EVENT_TYPES)
    assert {kind for kind in kinds if f"`{kind}`" not in HTTP} == set()


def test_every_act_of_a_decision_is_documented() -> None:
    row = next(line for line in HTTP.splitlines() if line.startswith("| `act` | choose"))
    assert set(re.findall(r"[a-z_]+", row.split("|")[2])) - {"or"} == {act.value for act in Act}
