"""What one start's log says is kept until its residency is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.supervise.life import Life
from mtpd.types import Command, EngineKey, FailureClass, LaunchPlan, UnixEndpoint
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


USING = (
    b"0.01.737.271 I llama_prepare_model_devices: using device ROCm0 (MI50) (%s) - 16000 MiB free\n"
)
CARD = DeviceKey("0000:03:00.0")


@pytest.mark.parametrize(
    ("device", "said", "refused"),
    [
        (CARD, b"0000:0a:00.0", True),
        (CARD, b"0000:03:00.0", False),
        (CARD, b"unknown id", False),
        (HOST, b"0000:0a:00.0", False),
    ],
)
def test_an_engine_on_another_card_than_the_planned_one_is_refused_while_it_loads(
    device: DeviceKey, said: bytes, *, refused: bool
) -> None:
    one = life(device)
    one.output.feed(2, USING % said)
    assert one.refused.is_set() is refused
    if refused:
        assert one.refusal.failure is FailureClass.CONFIG
        assert "0000:0a:00.0, it was to use 0000:03:00.0" in one.refusal.reason


def test_the_speed_of_an_engine_is_the_median_of_its_latest_long_replies() -> None:
    one = life(HOST)
    assert one.decode_tps is None
    head = "0.01.737.271 I slot print_timing: id  0 | task 7 |        eval time = "
    for ms, tokens in ((100.0, 4), (0.0, 64), (1000.0, 50), (1000.0, 40), (1000.0, 500)):
        line = f"{head}{ms:10.2f} ms / {tokens:5} tokens (    1.00 ms per token,     1.00 tokens"
        one.output.feed(2, f"{line} per second)\n".encode())
    assert one.decode_tps == pytest.approx(50.0)


def test_a_lost_card_is_heard_in_the_engines_own_words() -> None:
    one = life(CARD)
    line = "0.01.737.271 E srv  update_slots: decode() failed: vk::Queue::submit: ErrorDeviceLost"
    one.output.feed(2, f"{line}\n".encode())
    assert one.lost.is_set()
    assert one.lost_line == line
