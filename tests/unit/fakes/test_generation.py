"""The fake engine tells the truth about the speeds and rates that its script states."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.arguments import BadArgumentsError, read
from tests.fakes.generation import Request, Spec, Totals, steps
from tests.fakes.script import Device, Script


def run(script: Script, depth: int, *, limit: int = 4000, seed: int = 1) -> tuple[Totals, str]:
    totals, text = Totals(prompt_n=1, prompt_ms=1.0), ""
    for step in steps(script, Spec(depth), Request(prompt="p", seed=seed, limit=limit)):
        totals.add_step(step, depth)
        text += "".join(step.tokens)
    return totals, text


def test_without_speculation_the_reported_speed_is_the_scripts() -> None:
    totals, _ = run(Script(tps0=50.0), 0, limit=100)

    assert totals.timings()["predicted_per_second"] == pytest.approx(50.0)
    assert "draft_n" not in totals.timings()


def test_a_step_costs_what_its_rows_cost() -> None:
    totals, _ = run(Script(tps0=100.0, row_cost=0.4, acceptance=(0.0,)), 2, limit=4)

    # Two steps with 2 and 1 rows, and a last one that may not draft any more.
    assert totals.predicted_ms == pytest.approx(10 * (1.8 + 1.4 + 1.0))


def test_rates_are_conditional_on_the_positions_before() -> None:
    totals, _ = run(Script(acceptance=(0.9, 0.5)), 3, limit=20_000)
    first, second, third = totals.per_position

    assert first / totals.drafts == pytest.approx(0.9, abs=0.02)
    assert second / first == pytest.approx(0.5, abs=0.02)
    assert third / second == pytest.approx(0.5, abs=0.03)


def test_the_text_changes_only_where_the_script_says_so() -> None:
    script = Script(text_changes_at_depth=2)
    texts = [run(script, depth, limit=40)[1] for depth in range(4)]

    assert texts[0] == texts[1]
    assert texts[2] == texts[3] != texts[0]


@given(
    st.integers(0, 5),
    st.integers(1, 60),
    st.integers(),
    st.lists(st.floats(0, 1), min_size=1, max_size=5),
)
def test_the_counters_agree_with_each_other(
    depth: int, limit: int, seed: int, rates: list[float]
) -> None:
    totals, _ = run(Script(acceptance=tuple(rates)), depth, limit=limit, seed=seed)

    assert totals.predicted_n == limit
    assert sum(totals.per_position) == totals.accepted <= totals.drafted
    assert totals.per_position == sorted(totals.per_position, reverse=True)
    assert len(totals.per_position) == depth
    assert totals.drafts <= limit


def test_a_script_survives_the_trip_through_the_environment() -> None:
    script = Script(device=Device(), acceptance=(0.5,), say_at_start=("x",), evict_at_depth=3)

    assert Script.parse(script.dump()) == script
    assert Script.parse("") == Script()
    with pytest.raises(TypeError):
        Script.parse('{"no_such_knob": 1}')


def test_a_model_may_have_knobs_of_its_own() -> None:
    script = Script(tps0=1.0, models={"b": {"tps0": 2.0, "acceptance": [0.1]}})

    assert Script.parse(script.dump(), model="a").tps0 == 1.0
    assert Script.parse(script.dump(), model="b").acceptance == (0.1,)


def test_every_flag_of_the_real_help_is_known_with_its_value() -> None:
    arguments = read(["-m", "x", "-c", "512", "--no-ui", "-no-kvu", "--log_verbosity", "4"])

    assert arguments.text("--model") == "x"
    assert arguments.number("--ctx-size", 0) == 512
    assert arguments.number("--verbosity", 3) == 4
    assert "--no-ui" in arguments
    with pytest.raises(BadArgumentsError, match="invalid argument: --x"):
        read(["--x"])
