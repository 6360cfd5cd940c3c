"""What one start's log says is kept until its residency is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.supervise.life import Life
from mtpd.types import Command, EngineKey, LaunchPlan, UnixEndpoint
from mtpd.units import HOST, DeviceKey, EngineId
from tuner.types import Arm

if TYPE_CHECKING:
    from pathlib import Path


def life(device: DeviceKey) -> Life:
    plan = LaunchPlan(
        key=EngineKey(device, "m"),
        arm=Arm(profile="m"),
        command=Command(argv=("x",), env={}),
        endpoint=UnixEndpoint("/nowhere.sock"),
        fingerprint="f",
    )
    return Life(
        start=1,
        engine_id=EngineId("e"),
        plan=plan,
        file=None,
        on_fact=None,
        on_output=lambda _life: None,
    )


@pytest.mark.parametrize(
    ("device", "verdict"), [(HOST, "host"), (DeviceKey("0000:03:00.0"), "evicted")]
)
def test_an_engine_without_a_card_is_host_only_where_no_card_was_planned_for(
    corpus: Path, device: DeviceKey, verdict: str
) -> None:
    one = life(device)
    one.output.feed(2, (corpus / "logs" / "b11434_start_cpu_lv4.log").read_bytes())
    judged = one.judge()
    assert judged.label == verdict
    assert judged.passes == (device == HOST)


def test_the_engines_own_word_that_it_listens_is_heard(corpus: Path) -> None:
    one = life(HOST)
    text = (corpus / "logs" / "b11434_start_cpu_lv4.log").read_bytes()
    before, mark, after = text.partition(b"listening on")
    one.output.feed(2, before)
    assert not one.listening.is_set()
    one.output.feed(2, mark + after)
    assert one.listening.is_set()


def test_the_evidence_is_found_inside_a_flood(corpus: Path) -> None:
    one = life(HOST)
    flood = b"0.00.100.000 D noise that says nothing\n" * 100_000
    one.output.feed(2, flood)
    one.output.feed(2, (corpus / "logs" / "b11434_start_cpu_lv4.log").read_bytes())
    one.output.feed(2, flood)
    assert one.judge().label == "host"
