"""Perplexities and baselines come back as they were stored, and belong to one file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mtpd.errors import StoreError
from mtpd.store.db import Database
from mtpd.store.quality import MeasuredFile, QualityRows
from tests.fakes import views
from tests.fakes.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

FILE = MeasuredFile(path="/m.gguf", size=100, mtime_ns=7)
PERPLEXITY = replace(views.perplexity(), file=FILE.path, operation_id=None)
BASELINE = replace(views.baseline(), file=FILE.path, operation_id=None)


async def test_a_perplexity_comes_back_with_its_number_and_time(tmp_path: Path) -> None:
    clock = FakeClock()
    async with await Database.open(tmp_path / "db", clock) as db:
        rows = QualityRows(db=db, clock=clock)
        bare = replace(PERPLEXITY, sha256=None, stderr=None, note="odd", flags=())
        first = await rows.add_perplexity(replace(PERPLEXITY, id=0, at=""), FILE)
        second = await rows.add_perplexity(bare, FILE)
        assert first == replace(PERPLEXITY, id=1, at=first.at)
        assert first.at.endswith("Z")
        assert await rows.perplexities() == (second, first)
        assert await rows.perplexities(limit=1) == (second,)


async def test_another_file_at_the_same_place_has_none_of_its_results(tmp_path: Path) -> None:
    clock = FakeClock()
    async with await Database.open(tmp_path / "db", clock) as db:
        rows = QualityRows(db=db, clock=clock)
        stored = await rows.add_perplexity(PERPLEXITY, FILE)
        timed = await rows.add_baseline(BASELINE, FILE)
        assert await rows.perplexities(file=FILE) == (stored,)
        assert await rows.baselines(file=FILE) == (timed,)
        for other in (replace(FILE, mtime_ns=8), replace(FILE, size=99), replace(FILE, path="/n")):
            assert await rows.perplexities(file=other) == ()
            assert await rows.baselines(file=other) == ()


async def test_a_baseline_comes_back_with_every_test(tmp_path: Path) -> None:
    clock = FakeClock()
    async with await Database.open(tmp_path / "db", clock) as db:
        rows = QualityRows(db=db, clock=clock)
        tests = (BASELINE.rows[0], replace(BASELINE.rows[1], tps_sd=None, samples=()))
        stored = await rows.add_baseline(replace(BASELINE, rows=tests), FILE)
        assert stored.rows == tests
        assert await rows.baselines() == (stored,)


@pytest.mark.parametrize("changes", [{"perplexity": 0.0}, {"chunks": 0}, {"corpus_sha256": "c0"}])
async def test_what_no_tool_measures_is_not_stored(
    tmp_path: Path, changes: dict[str, float]
) -> None:
    clock = FakeClock()
    async with await Database.open(tmp_path / "db", clock) as db:
        rows = QualityRows(db=db, clock=clock)
        with pytest.raises(StoreError):
            await rows.add_perplexity(replace(PERPLEXITY, **changes), FILE)  # type: ignore[arg-type]
        assert await rows.perplexities() == ()
