"""Requests are checked strictly, answers keep their shape."""

from __future__ import annotations

import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.api.problem import CONTENT_TYPE, from_error, from_status
from mtpd.api.schema import (
    InvalidRequestError,
    MeasurementQuery,
    NoQuery,
    SwitchBody,
    TuneBody,
    UnloadBody,
    dump,
    dump_piecewise,
    parse_body,
    parse_query,
)
from mtpd.cli.decode import decode
from mtpd.errors import BinaryError, ConfigError, MtpdError, NotFoundError, UpstreamError
from mtpd.explanation_views import ExplanationView
from mtpd.views import ModelView, ProgressView, StatusView, encode
from tests.fakes import views

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=3) | JSON)
def test_a_large_answer_has_the_text_of_any_other(value: object) -> None:
    try:
        text = dump(value)
    except ValueError:  # infinity has no place in JSON
        with pytest.raises(ValueError, match="JSON"):
            dump_piecewise(value)
    else:
        assert dump_piecewise(value) == text


def refused(raw: bytes) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        parse_body(raw, TuneBody)
    return caught.value


def test_a_body_is_taken_as_it_is_declared() -> None:
    body = parse_body(b'{"subject": "default", "depths": [0, 2], "apply": false}', TuneBody)
    assert (body.subject, body.method, body.depths, body.apply) == (
        "default",
        "model-based",
        (0, 2),
        False,
    )


def test_an_empty_body_is_an_empty_object() -> None:
    assert parse_body(b"", UnloadBody).model is None


def test_every_problem_of_a_body_is_named_with_its_place() -> None:
    problem = refused(b'{"depths": [0, "2", -1], "apply": 1, "dpeth": 3}').problem
    places = {error.path for error in problem.errors}
    assert places == {"subject", "depths.1", "depths.2", "apply", "dpeth"}
    assert problem.status == 422
    assert problem.slug == "invalid-body"


@pytest.mark.parametrize(
    "raw",
    [b'{"model": "a", "depth": "2"}', b'{"model": "a", "depth": 2.0}',
     b'{"model": "a", "force": 1}', b'{"model": ""}', b'{"model": "a", "depth": 65}',
     b'{"model": null}', b"[]", b'"a"'],
)  # fmt: skip
def test_nothing_is_coerced(raw: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        parse_body(raw, SwitchBody)


@pytest.mark.parametrize("limit", [b"Infinity", b"1e999", b"NaN"])
def test_a_limit_is_a_finite_number(limit: bytes) -> None:
    problem = refused(b'{"subject": "a", "max_joules": ' + limit + b"}").problem
    assert [error.path for error in problem.errors] == ["max_joules"]


@pytest.mark.parametrize("raw", [b"{", b"nope", b'{"subject": "a"} x', b"\xff"])
def test_what_is_not_json_is_named_so(raw: bytes) -> None:
    problem = refused(raw).problem
    assert (problem.slug, problem.status) == ("invalid-json", 400)


@given(JSON)
def test_any_json_is_taken_or_refused_but_never_crashes(value: object) -> None:
    raw = json.dumps(value).encode()
    with contextlib.suppress(InvalidRequestError):
        parse_body(raw, TuneBody)


def test_a_query_is_read_from_text() -> None:
    query = parse_query({"depth": ["2"], "id": ["1", "3"]}, MeasurementQuery)
    assert (query.depth, query.id, query.limit) == (2, (1, 3), 200)


@pytest.mark.parametrize(
    ("query", "place"),
    [({"depth": ["two"]}, "depth"), ({"limit": ["0"]}, "limit"), ({"limit": ["9999"]}, "limit"),
     ({"dpeth": ["1"]}, "dpeth"), ({"depth": ["1", "2"]}, "depth"), ({"id": ["x"]}, "id.0")],
)  # fmt: skip
def test_a_wrong_query_is_refused_with_its_place(query: dict[str, list[str]], place: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_query(query, MeasurementQuery)
    assert [error.path for error in caught.value.problem.errors] == [place]
    assert caught.value.problem.status == 400


def test_a_route_without_parameters_takes_none() -> None:
    with pytest.raises(InvalidRequestError):
        parse_query({"verbose": ["1"]}, NoQuery)


def test_views_keep_their_order_and_turn_tuples_into_lists() -> None:
    data = encode(views.choice())
    assert isinstance(data, dict)
    assert list(data) == [
        "subject",
        "arm",
        "reason",
        "decision_id",
        "measured",
        "pinned",
        "measured_arm",
    ]
    assert encode({"models": (views.model(),)}) == {"models": [encode(views.model())]}


def test_a_view_that_is_no_view_is_a_fault_of_ours() -> None:
    with pytest.raises(TypeError, match="object"):
        encode({"x": object()})
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump({"x": math.nan})


@pytest.mark.parametrize("view", [views.status(), views.model(), views.unmeasured_model()])
def test_what_is_encoded_is_decoded_again(view: StatusView | ModelView) -> None:
    assert decode(type(view), json.loads(dump(view))) == view


def test_a_newer_daemons_members_are_ignored_and_missing_ones_named() -> None:
    data = encode(ProgressView(done=1, total=None, note=""))
    assert isinstance(data, dict)
    assert decode(ProgressView, {**data, "eta_s": 3}).done == 1
    with pytest.raises(UpstreamError, match="total"):
        decode(ProgressView, {"done": 1})


@given(JSON)
def test_any_json_is_decoded_or_refused_with_advice(value: object) -> None:
    data = json.loads(json.dumps(value))
    for kind in (ProgressView, StatusView, ExplanationView):
        with pytest.raises(UpstreamError):
            decode(kind, data)


def test_errors_become_problems_with_their_hint() -> None:
    problem = from_error(NotFoundError("There is no model 'x'.", hint="mtpctl models lists them."))
    assert problem.body() == {
        "type": "urn:mtpd:problem:not-found",
        "title": "No such thing",
        "status": 404,
        "detail": "There is no model 'x'.",
        "hint": "mtpctl models lists them.",
    }
    assert CONTENT_TYPE == "application/problem+json"


def test_every_problem_of_a_configuration_is_listed() -> None:
    problem = from_error(ConfigError(("a.toml:1: x", "a.toml:2: y")))
    assert [error.message for error in problem.errors] == ["a.toml:1: x", "a.toml:2: y"]


def test_an_error_without_a_kind_of_its_own_is_a_refusal() -> None:
    assert from_error(MtpdError("no")).status == 409
    assert from_error(BinaryError("no")).status == 503
    assert from_status(405, "no").slug == "method-not-allowed"
