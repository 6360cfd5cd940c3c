"""Runner, table, saved runs and plots of the search's benchmark."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.tuner.__main__ import main
from tests.bench.tuner.compare import Conditions, measure
from tests.bench.tuner.plots import draw
from tests.bench.tuner.results import Run, labelled, load, merged, save
from tests.bench.tuner.strategies import STRATEGIES, Outcome
from tests.bench.tuner.table import mean, quantile, share, table, within

DEFAULTS = dataclasses.asdict(Conditions())
ROOT = Path(__file__).parents[3]
QUICK = ("static 2", "sweep, stops at eviction", "search")


def outcome(regret: float = 0.0, restarts: int = 2) -> Outcome:
    return Outcome(
        depth=2, regret=regret, evicted=False, restarts=restarts, cells=24, seconds=600.0
    )


@pytest.mark.slow
def test_every_strategy_runs_over_the_same_machines() -> None:
    results = measure(STRATEGIES, machines=2, seed="test")
    assert list(results) == list(STRATEGIES)
    for rows in results.values():
        assert len(rows) == 2
        assert all(0 <= row.regret < 1 for row in rows)
        assert all((row.restarts > 0) == (row.cells > 0) == (row.seconds > 0) for row in rows)


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "run.json"
    words = ["--machines", "45", "--seed", "test", "--jobs", "2", "--save", str(kept)]
    command = [sys.executable, "-m", "tests.bench.tuner", *words, "--only", *QUICK]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    finished: list[int] = []
    here = measure(QUICK, machines=45, seed="test", progress=finished.append)
    assert load(kept).outcomes == here
    assert finished == list(range(1, 46))


def test_the_sweep_of_the_note_measures_all_depths_and_the_other_stops() -> None:
    results = measure(["note 002 sweep", "sweep, stops at eviction"], machines=12, seed="test")
    assert {(row.restarts, row.cells) for row in results["note 002 sweep"]} == {(6, 72)}
    starts = {row.restarts for row in results["sweep, stops at eviction"]}
    assert min(starts) < max(starts) <= 6


def test_what_is_given_away_is_against_the_best_depth() -> None:
    one = Conditions().machine("test", 0)
    speeds = [one.tps(depth) for depth in range(6)]
    (row,) = measure(["static 3"], machines=1, seed="test")["static 3"]
    assert row.regret == pytest.approx(1 - speeds[3] / max(speeds))


def test_a_choice_is_evicted_if_it_is_deeper_than_memory_allows() -> None:
    ceilings = [Conditions().machine("test", number).ceiling for number in range(12)]
    assert {2, 3} <= set(ceilings)
    rows = measure(["static 3"], machines=12, seed="test")["static 3"]
    assert [row.evicted for row in rows] == [ceiling < 3 for ceiling in ceilings]


def test_a_search_that_knows_the_memory_starts_nothing_that_does_not_fit() -> None:
    names = ["search", "search, memory unknown"]
    number = next(n for n in range(99) if Conditions().machine("test", n).ceiling == 1)
    results = measure(names, machines=number + 1, seed="test")
    known, unknown = (results[name][number] for name in names)
    assert known.restarts <= 2 < 1 + unknown.restarts


@pytest.mark.parametrize(
    "conditions",
    [
        Conditions(hot=0.9),
        Conditions(logs_read=False),
        Conditions(bias=0.1),
        Conditions(bias_sd=0.1),
        Conditions(tilt=0.1),
        Conditions(tilt_sd=0.1),
        Conditions(irregular=0.4),
    ],
    ids=lambda one: next(k for k, v in dataclasses.asdict(one).items() if v != DEFAULTS[k]),
)
def test_every_condition_reaches_the_machine(conditions: Conditions) -> None:
    assert conditions.machine("test", 0) != Conditions().machine("test", 0)


def test_a_share_has_a_wilson_interval() -> None:
    half = share(50, 100)
    assert (half.value, half.low, half.high) == pytest.approx((0.5, 0.4038, 0.5962), abs=1e-4)
    assert share(100, 100).high == 1.0
    assert str(share(0, 10)) == "0.00 % [0.00, 27.75]"
    assert within([outcome(0.02), outcome(0.0201)], 0.02).value == 0.5


def test_a_mean_has_a_normal_interval_and_a_single_value_has_none() -> None:
    assert str(mean([1.0, 3.0])) == "2.00 ± 1.96"
    assert str(mean([4.0])) == "4.00 ± 0.00"


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_is_the_smallest_value_that_enough_do_not_exceed(
    values: list[float], level: float
) -> None:
    found = quantile(values, level)
    assert sum(value <= found for value in values) >= level * len(values)
    assert sum(value < found for value in values) < level * len(values)


def test_the_table_shows_shares_means_and_quantiles() -> None:
    rows = [outcome(0.0, 1), outcome(0.025, 1), outcome(0.05, 4)]
    evicted = dataclasses.replace(outcome(0.5, 1), evicted=True)
    lines = table({"one": [*rows, evicted]}).splitlines()
    assert len(lines) == 3
    assert lines[2] == (
        "| one | 4 | 25.00 % [4.56, 69.94] | 50.00 % [15.00, 85.00] | 14.38 ± 23.36 % | 50.0 % "
        "| 25.00 % | 1.75 ± 1.47 (4) | 24.00 ± 0.00 | 10.00 ± 0.00 |"
    )


def saved(
    path: Path, names: tuple[str, ...], *, seed: str = "s", conditions: Conditions | None = None
) -> Run:
    rows = [outcome(0.001 * n, 1 + n % 3) for n in range(40)]
    run = Run.of(
        dict.fromkeys(names, rows),
        command="c",
        machine="m",
        seed=seed,
        conditions=conditions or Conditions(),
    )
    save(run, path)
    return run


def test_a_saved_run_is_read_back_as_it_was(tmp_path: Path) -> None:
    run = saved(tmp_path / "run.json", QUICK)
    assert load(tmp_path / "run.json") == run


def test_runs_over_one_fleet_are_merged_and_others_are_refused(tmp_path: Path) -> None:
    first = saved(tmp_path / "1", ("a", "b"))
    second = saved(tmp_path / "2", ("c",))
    assert list(merged([first, second])) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="in more than one run: a, b"):
        merged([first, first])
    for other in (
        saved(tmp_path / "3", ("c",), seed="t"),
        saved(tmp_path / "4", ("c",), conditions=Conditions(hot=0.1)),
    ):
        with pytest.raises(ValueError, match="different fleets"):
            merged([first, other])


def test_runs_over_several_fleets_are_named_by_what_is_not_the_prior(tmp_path: Path) -> None:
    prior = saved(tmp_path / "1", ("a", "b"))
    other = saved(
        tmp_path / "2", ("a",), seed="t", conditions=Conditions(tilt=-0.02, logs_read=False)
    )
    names = ["a; seed s", "b; seed s", "a; seed t, logs_read 0, tilt -0.02"]
    assert list(labelled([prior, other])) == names
    with pytest.raises(ValueError, match="in more than one run: a; seed t"):
        labelled([other, other])


@pytest.mark.slow
def test_plots_are_equal_for_equal_runs_small_and_opaque(tmp_path: Path) -> None:
    run = saved(tmp_path / "run", (*QUICK, "LUCB"))
    once = draw(run.outcomes, tmp_path / "a", "svg")
    again = draw(run.outcomes, tmp_path / "b", "svg")
    assert [path.name for path in once] == ["tuner_frontier.svg", "tuner_regret.svg"]
    for one, other in zip(once, again, strict=True):
        text = one.read_text()
        assert text == other.read_text()
        assert len(text) < 100_000
        assert "<dc:date>" not in text
        root = ET.fromstring(text)  # noqa: S314 - written by us
        background = next(root.iter("{http://www.w3.org/2000/svg}path"))
        assert "fill: #ffffff" in background.attrib["style"]


@pytest.mark.slow
def test_the_command_measures_saves_and_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = str(tmp_path / "run.json")
    main(["--machines", "2", "--seed", "x", "--save", kept, "--only", "static 2", "search"])
    printed = capsys.readouterr().out
    assert printed.startswith("python -m tests.bench.tuner --machines 2 --seed x ")
    main(["table", "--results", kept])
    assert printed.endswith(capsys.readouterr().out)
    main(["table", "--results", kept, "--fleets"])
    assert "| search; seed x | 2 |" in capsys.readouterr().out
    main(["plot", "--results", kept, "--out", str(tmp_path / "images")])
    assert [path.suffix for path in (tmp_path / "images").iterdir()] == [".svg", ".svg"]


def test_the_command_runs_only_searches_that_know_as_much_memory_as_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ["static 2", "search", "search, memory unknown"]
    shown = {}
    for memory in ("known", "unknown"):
        main(["--machines", "1", "--memory", memory, "--only", *names])
        rows = capsys.readouterr().out.splitlines()[5:]
        shown[memory] = [row.split(" | ")[0].removeprefix("| ") for row in rows]
    assert shown == {"known": names[:2], "unknown": [names[0], names[2]]}


def test_the_command_hands_every_condition_on(tmp_path: Path) -> None:
    words = "--logs-unread --hot .1 --bias .2 --bias-fixed .3 --tilt .4 --tilt-fixed .5"
    kept = tmp_path / "run.json"
    words += f" --irregular .6 --machines 1 --save {kept}"
    main([*words.split(), "--only", "static 2"])
    assert load(kept).conditions == {
        "hot": 0.1,
        "logs_read": False,
        "bias": 0.3,
        "bias_sd": 0.2,
        "tilt": 0.5,
        "tilt_sd": 0.4,
        "irregular": 0.6,
    }
