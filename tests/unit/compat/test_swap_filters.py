"""llama-swap's ``filters`` as those of a profile."""

from __future__ import annotations

import pytest

from mtpd.compat.remarks import Kind
from tests.unit.compat.translating import faults, one_model, profile, swap, told


def filtered(filters: str) -> object:
    return profile(one_model("-c 1 -np 1", f"    filters: {filters}\n")).get("filters")


@pytest.mark.parametrize(
    ("filters", "made"),
    [
        (
            "{stripParams: ' top_k ,, temperature,top_k, model'}",
            {"strip": ["top_k", "temperature"]},
        ),
        ("{stripParams: ''}", None),
        ("{stripParams: null}", None),
        ("{setParams: {}}", None),
        ("{setParams: {model: x, '?': 1, 'max_tokens?': 10}}", {"set": {"max_tokens?": 10}}),
        ("{setParams: {a: {b: [1, {c: true}]}}}", {"set": {"a": {"b": [1, {"c": True}]}}}),
        ("{setParams: {a.b: 1}}", {"set": {"a.b": 1}}),
        ("{setParamsByID: {m: {a: 1}}}", {"set_by_name": {"m": {"a": 1}}}),
    ],
)
def test_what_becomes_of_filters(filters: str, made: object) -> None:
    assert filtered(filters) == made


def test_macros_keep_the_type_of_a_value() -> None:
    made = swap(
        "macros: {t: 0.5, who: low}\nmodels:\n  m:\n    cmd: llama-server --port ${PORT} -m /m\n"
        "    filters:\n      setParams: {temperature: '${t}'}\n"
        "      setParamsByID: {'${MODEL_ID}:${who}': {effort: '${who}'}}\n"
    )
    assert profile(made)["filters"] == {
        "set": {"temperature": 0.5},
        "set_by_name": {"m:low": {"effort": "low"}},
    }
    assert profile(made)["aliases"] == ["m:low"]
    assert made.lines["models", "m", "filters", "set", "temperature"] == 6


def test_the_name_that_a_slash_made_an_alias_is_the_one_that_is_asked_for() -> None:
    made = swap(
        "models:\n  org/m:\n    cmd: llama-server --port ${PORT} -m /m\n"
        "    filters: {setParamsByID: {'${MODEL_ID}': {seed: 1}}}\n"
    )
    assert profile(made, "org-m")["filters"] == {"set_by_name": {"org/m": {"seed": 1}}}


def test_another_program_is_asked_with_the_same_filters() -> None:
    made = swap("models:\n  m:\n    cmd: vllm --port ${PORT}\n    filters: {stripParams: seed}\n")
    assert profile(made)["filters"] == {"strip": ["seed"]}


@pytest.mark.parametrize(
    ("filters", "kind", "what"),
    [
        ("{policy: x}", Kind.NOT_HONOURED, ".policy: this key is not known"),
        ("{setParams: {a: null}}", Kind.NOT_HONOURED, ".setParams.a: null is not set: leave the"),
        ("{setParams: {x: [{y: null}]}}", Kind.NOT_HONOURED, ".setParams.x: null is not set: "),
        ("{setParams: {0: x}}", Kind.NOT_HONOURED, ".setParams.0: '0' is not the name of a"),
        ("{stripParams: 'a, model'}", Kind.NOTE, ".stripParams: 'model' is protected: the model"),
    ],
)
def test_what_is_lost_is_told(filters: str, kind: Kind, what: str) -> None:
    lines = told(one_model("-c 1 -np 1", f"    filters: {filters}\n"), kind)
    assert [one for one in lines if one.startswith(f"4: models.m.filters{what}")], lines


@pytest.mark.parametrize(
    ("filters", "fault"),
    [
        ("[a]", "4: models.m.filters: must be a table"),
        ("{stripParams: [a]}", "4: models.m.filters.stripParams: must be text: names with commas"),
        ("{setParams: [a]}", "4: models.m.filters.setParams: must be a table of parameters"),
        ("{setParamsByID: [a]}", "4: models.m.filters.setParamsByID: must be a table of names"),
        ("{setParamsByID: {m: 1}}", "4: models.m.filters.setParamsByID.m: must be a table of"),
        (
            "{setParams: {a: '${no}'}}",
            "4: models.m.filters.setParams.a: there is no macro ${no}: define it under macros",
        ),
    ],
)
def test_what_llama_swap_refuses_is_refused(filters: str, fault: str) -> None:
    (one,) = faults(one_model("-c 1 -np 1", f"    filters: {filters}\n"))
    assert one.startswith(fault)
