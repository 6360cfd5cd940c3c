"""What the benchmark of single steps makes of its measurements."""

from __future__ import annotations

import pytest

from tests.bench.bench_steps import Start, measured_table, predicted_table

PLAIN = Start(depth=0, steady=10.0, short=(10.5,), spread=0.0, draft=None)
ONE = Start(depth=1, steady=14.0, short=(11.0, 15.0), spread=0.0, draft=0.5)
TWO = Start(depth=2, steady=18.0, short=(12.0, 16.0, 20.0), spread=0.0, draft=0.25)


def test_a_start_predicts_along_the_line_through_its_plain_and_its_full_step() -> None:
    assert TWO.predicted(1, full=TWO.steady) == pytest.approx(15.0)
    assert TWO.predicted(3, full=TWO.steady) == pytest.approx(21.0)
    assert TWO.predicted(2, full=20.0) == 20.0
    assert TWO.extra == 2.0


def test_the_tables_show_what_was_measured_and_how_wrong_each_start_is() -> None:
    assert measured_table([PLAIN, TWO]).splitlines()[2:] == [
        "| 0 | 10.000 | 10.500 |  |  |  | +0.500 |  |",
        "| 2 | 18.000 | 12.000 | 16.000 | 20.000 |  | +2.000 | 0.250 |",
    ]
    assert predicted_table([PLAIN, ONE, TWO]).splitlines()[2:] == [
        "| 1 | T(k), steady | 14.000 (+0.0%) | 17.000 (-5.6%) |",
        "| 1 | T'(k), single | 15.000 (+7.1%) | 19.000 (+5.6%) |",
        "| 2 | T(k), steady | 15.000 (+7.1%) | 18.000 (+0.0%) |",
        "| 2 | T'(k), single | 16.000 (+14.3%) | 20.000 (+11.1%) |",
    ]
