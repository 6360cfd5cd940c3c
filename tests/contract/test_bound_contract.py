"""The upper bound of a model against what a real engine prints when it loads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.config.model import Purpose
from mtpd.control.memory import most
from mtpd.control.shapes import outline_of
from mtpd.engine import logs
from mtpd.engine.facts import Buffer
from mtpd.units import MIB
from tests.contract.harness import EMBEDDED, running
from tests.fakes.small_models import write_bert, write_llama
from tests.unit.control.made import profile
from tuner.bound import Bound

if TYPE_CHECKING:
    from pathlib import Path

ROUNDING = 0.01 * MIB


@pytest.mark.real_engine
@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoder", "load"),
    [
        (True, (4096, 512, 1, "auto")),
        (True, (4096, 2048, 2, "off")),
        (False, (4096, 512, 1, "auto")),
        (False, (32768, 2048, 4, "auto")),
    ],
)
async def test_no_load_takes_more_than_its_bound(
    tmp_path: Path,
    encoder: bool,  # noqa: FBT001 - a column of the table
    load: tuple[int, int, int, str],
) -> None:
    context, ubatch, slots, flash = load
    model = (write_bert if encoder else write_llama)(tmp_path / "model.gguf")
    which = profile(
        "small",
        model=str(model),
        max_depth=0,
        context=context,
        slots=slots,
        ubatch=ubatch,
        purpose=Purpose.EMBEDDING if encoder else Purpose.TEXT,
    )
    bounded = most(which, 0, outline_of(str(model)))
    assert isinstance(bounded, Bound)
    flags = [
        *("--model", str(model), "--host", str(tmp_path / "e.sock"), "--threads", "1", "--no-ui"),
        *("--log-verbosity", "4", "--ctx-size", str(context), "--parallel", str(slots)),
        *("--batch-size", str(ubatch), "--ubatch-size", str(ubatch), "--no-warmup"),
        *("--flash-attn", flash, *(["--embedding"] if encoder else [])),
    ]
    async with running(EMBEDDED, *flags, home=tmp_path) as engine:
        await engine.until_said("model loaded")
        facts = [fact for line in engine.lines if isinstance(fact := logs.fact(line), Buffer)]
    printed = {
        kind: sum(round(fact.mib * MIB) for fact in facts if fact.kind == kind)
        for kind in ("model", "KV", "compute")
    }
    assert printed["compute"] > 0
    assert abs(printed["model"] - bounded.weights_bytes) <= ROUNDING
    assert abs(printed["KV"] - bounded.kv_bytes) <= ROUNDING
    assert printed["compute"] <= bounded.compute_bytes
