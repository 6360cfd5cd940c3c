"""What lines of an engine's log are evidence of."""

from __future__ import annotations

from typing import get_args

import pytest

from mtpd.engine import logs
from mtpd.engine.facts import Fact
from mtpd.engine.told import KEPT, NOTES, told
from mtpd.log_views import ABOUT


def test_every_fact_is_evidence_of_something() -> None:
    assert set(NOTES) == set(get_args(Fact))
    assert {note.about for note in NOTES.values()} == set(ABOUT)
    assert set(ABOUT) > KEPT


@pytest.mark.parametrize(
    ("line", "level", "note"),
    [
        (
            "0.00.497.012 I load_tensors: offloaded 28/28 layers to GPU",
            "info",
            ("layers_offloaded", "residency"),
        ),
        (
            "0.01.000.000 I llama_kv_cache:      ROCm0 KV buffer size =   272.00 MiB",
            "info",
            ("buffer", "residency"),
        ),
        ("0.01.000.000 I srv  llama_server: model loaded", "info", ("model_loaded", "start")),
        ("0.01.000.000 W something else", "warning", None),
        ("0.01.000.000 E something else", "error", None),
        ("0.01.000.000 D something else", "debug", None),
        ("no prefix at all", None, None),
        ("", None, None),
    ],
)
def test_a_line_is_read(line: str, level: str | None, note: tuple[str, str] | None) -> None:
    fact = logs.fact(line)
    assert logs.level(line) == level
    assert (None if fact is None else told(fact)) == note
