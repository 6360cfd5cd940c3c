"""Units never mix: names say them, and no expression joins two different ones."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.property.tuner.units_ast import UNITS, mixed, unit_of_name

ROOT: Final = Path(__file__).parents[3]
SOURCES: Final = sorted(
    path for top in ("tuner", "mtpd") for path in (ROOT / top).rglob("*.py") if path.is_file()
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_expression_joins_two_units(path: Path) -> None:
    """There are no exceptions: a conversion multiplies or divides and gets a new name."""
    assert mixed(path.read_text(encoding="utf-8")) == []


def test_all_of_both_packages_is_looked_at() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in SOURCES}
    assert {"tuner/cost.py", "mtpd/units.py", "mtpd/engine/evidence.py"} <= names
    assert len(names) > 100


@pytest.mark.parametrize(
    "source",
    [
        "x = wait_s + wait_ms",
        "x = limit_bytes - used_mib",
        "total_s += step_ms",
        "total_s -= step_ms",
        "late = elapsed_s > limit_ms",
        "late = elapsed_s == limit_ms",
        "ok = 0 < cap_w < edge_c",
        "x = max(a_bytes, b_mib)",
        "x = min(a.free_bytes, b.free_mib)",
        "wait_s = timeout_ms",
        "wait_s: float = timeout_ms",
        "f(wait_s=timeout_ms)",
        "if (left_s := budget_ms): pass",
        "x = a.tps_mean_tps + b.cells[0].step_s",
        "x = -(a_s + 1) - abs(b_ms)",
        "x = (a_s if y else 0) + b_ms",
        "x = clock.now_s() - deadline_ms",
        "x = (a_s - b_s) + c_ms",
        "x = spent_j + power_w",
        "x = prompt_tokens + decode_s",
        "x = context_tokens - free_bytes",
        "x = sum(s.step_s for s in steps) + gap_ms",
        "x = (a_s or b_s) - c_ms",
        "x = [a_s, b_s][0] + c_ms",
        "x = round(a_s, 3) + c_ms",
        "x = load_percent - power_w",
        "x = a_hz + b_mhz",
        "def wait_s(): return limit_ms",
        "async def wait_s(): return await limit_ms()",
    ],
)
def test_every_kind_of_mixture_is_caught(source: str) -> None:
    found = mixed(source)
    assert len(found) == 1
    assert found[0].left != found[0].right
    assert found[0].line == 1


@pytest.mark.parametrize("unit", sorted(UNITS))
def test_every_unit_is_caught_against_another_one(unit: str) -> None:
    other = "s" if unit != "s" else "ms"
    assert mixed(f"x = a_{unit} + b_{other}")
    assert mixed(f"x = a_{other} < obj.b_{unit}")
    assert not mixed(f"x = a_{unit} + b_{unit}")


@pytest.mark.parametrize(
    "source",
    [
        "wait_s = timeout_ms / 1000",
        "free_bytes = free_mib * _MIB",
        "x = a_s + 0.5",
        "x = a_tokens / b_s - c_tps",
        "x = names + others",
        "x = a_s is b_ms",
        "x = a_s in (b_s, c_s)",
        "x = max(a_s, key=b_ms)",
    ],
)
def test_conversions_and_plain_numbers_are_let_through(source: str) -> None:
    assert mixed(source) == []


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("wait_s", "s"),
        ("MAX_GAP_S", "s"),
        ("free_bytes", "bytes"),
        ("_MIB", None),
        ("s", None),
        ("cells", None),
        ("alphas", None),
        ("edge_c", "c"),
    ],
)
def test_a_unit_is_the_last_word_of_a_name_that_has_another(name: str, unit: str | None) -> None:
    assert unit_of_name(name) == unit
