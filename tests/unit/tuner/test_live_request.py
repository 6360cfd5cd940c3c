from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.tuner.machine import arm
from tuner.classes import Band, Kind, Sampling, WorkloadClass, band_of, sampling_of
from tuner.request import Exclusion, Request, Usable, is_degenerate, usable
from tuner.types import Arm, Drafter, Unknown

FULL = Request(
    arm=arm(2),
    klass=WorkloadClass(),
    tokens=401,
    decode_s=8.0,
    accepted=240,
    drafted=320,
    steps=160,
    per_position=(140, 100),
)


def test_full_counters_identify_every_position() -> None:
    seen = usable(FULL)
    assert isinstance(seen, Usable)
    assert seen.decode_steps == 160
    assert (seen.reached, seen.hits) == ((160, 140), (140, 100))
    assert seen.tokens_per_step == 2.5
    assert seen.unidentified is None


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("cancelled", Exclusion.CANCELLED),
        ("truncated", Exclusion.TRUNCATED),
        ("throttled", Exclusion.THROTTLED),
        ("repeated", Exclusion.DEGENERATE),
    ],
)
def test_what_must_not_count_is_excluded_by_name(flag: str, why: Exclusion) -> None:
    assert usable(replace(FULL, **{flag: True})) is why  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "broken",
    [
        {"accepted": None},
        {"accepted": -1},
        {"accepted": 400},
        {"decode_s": 0.0},
        {"decode_s": 5e-324},
        {"decode_s": float("inf")},
        {"decode_s": float("nan")},
    ],
)
def test_a_request_without_usable_counters_does_not_count(broken: dict[str, float]) -> None:
    changed = replace(FULL, **broken)  # type: ignore[arg-type]
    assert usable(changed) is Exclusion.UNCOUNTED


def test_depth_0_has_steps_and_no_positions() -> None:
    plain = replace(FULL, arm=arm(0), accepted=0, drafted=0, steps=0, per_position=())
    seen = usable(plain)
    assert seen == Usable(decode_steps=400, accepted=0)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"per_position": None}, "the positions were not counted"),
        ({"per_position": ()}, "the positions were not counted"),
        ({"per_position": (140, 150)}, "the counters contradict each other"),
        ({"per_position": (140, 100, 10)}, "the counters contradict each other"),
        ({"per_position": (140, -1)}, "the counters contradict each other"),
        ({"per_position": (170, 70)}, "the counters contradict each other"),
        ({"drafted": None}, "how many tokens were drafted is not known"),
        ({"steps": 0, "per_position": (0, 0)}, "no step had a draft"),
        ({"drafted": 300}, "only 94% of the drafts were full"),
    ],
)
def test_what_cannot_be_identified_stays_unknown_and_the_total_counts(
    changed: dict[str, tuple[int, ...] | int | None], reason: str
) -> None:
    seen = usable(replace(FULL, **changed))  # type: ignore[arg-type]
    assert isinstance(seen, Usable)
    assert seen.unidentified == Unknown(reason)
    assert (seen.reached, seen.hits) == ((), ())
    assert seen.tokens_per_step == 2.5


def test_at_depth_1_the_total_is_the_position_and_the_steps_follow() -> None:
    one = replace(FULL, arm=arm(1), accepted=180, drafted=220, steps=None, per_position=None)
    seen = usable(one)
    assert isinstance(seen, Usable)
    assert (seen.reached, seen.hits) == ((220,), (180,))


def test_with_p_min_steps_without_a_draft_count_in_the_total_only() -> None:
    """TUNER.md section 0.10: the log's mean length said 2.75, the truth was 1.1875."""
    cut = Arm(profile="model", drafter=Drafter.MTP, depth=2, p_min=0.3)
    one = replace(FULL, arm=cut, tokens=400, accepted=63, drafted=80, steps=None)
    seen = usable(replace(one, per_position=(36, 27)))
    assert isinstance(seen, Usable)
    assert seen.tokens_per_step == pytest.approx(1.1875)
    assert seen.unidentified == Unknown("with p-min, steps without a draft are not told apart")
    assert isinstance(usable(replace(one, steps=40, per_position=(36, 27))), Usable)


def test_a_clamped_depth_is_read_from_the_number_of_positions() -> None:
    clamped = replace(FULL, arm=arm(3), drafted=320)
    seen = usable(clamped)
    assert isinstance(seen, Usable)
    assert len(seen.hits) == 2


def test_text_that_repeats_itself_is_told_by_an_incredible_run() -> None:
    run = Usable(decode_steps=100, accepted=200, drafted=200)
    assert is_degenerate(run, full_chance=0.6)
    assert not is_degenerate(run, full_chance=0.99)
    few, enough = (Usable(decode_steps=n, accepted=2 * n, drafted=2 * n) for n in (18, 19))
    assert not is_degenerate(few, full_chance=0.6)
    assert is_degenerate(enough, full_chance=0.6)
    assert not is_degenerate(Usable(decode_steps=100, accepted=190, drafted=200), 0.6)
    assert not is_degenerate(Usable(decode_steps=100, accepted=0, drafted=None), 0.6)


def test_classes_have_bands_and_names() -> None:
    assert [band_of(n) for n in (0, 1024, 1025, 8191, 8192)] == [
        Band.SHORT,
        Band.SHORT,
        Band.MEDIUM,
        Band.MEDIUM,
        Band.LONG,
    ]
    assert [sampling_of(t) for t in (-1.0, 0.0, 0.1)] == [
        Sampling.GREEDY,
        Sampling.GREEDY,
        Sampling.SAMPLED,
    ]
    assert str(WorkloadClass()) == "short/mixed/greedy"
    long_code = WorkloadClass(band=Band.LONG, kind=Kind.CODE, reasoning=True)
    assert str(long_code) == "long/code/greedy/reasoning"
