from __future__ import annotations

from dataclasses import replace

import pytest

from mtpd.engine.prom import SpecCounters, delta, parse, spec_counters
from mtpd.types import Absent
from tests.unit.engine import recorded


def counters(name: str) -> SpecCounters:
    found = spec_counters(recorded.text(f"logs/{name}.txt"))
    assert isinstance(found, SpecCounters)
    return found


def speculation(found: SpecCounters | Absent) -> SpecCounters | Absent:
    """The counters without the tokens and seconds of all decoding."""
    untimed = {"generated": None, "decode_s": None}
    return found if isinstance(found, Absent) else replace(found, **untimed)  # type: ignore[arg-type]


def made(drafts: int, drafted: int, accepted: int, per: tuple[int, ...] | None) -> SpecCounters:
    return SpecCounters(drafts=drafts, drafted=drafted, accepted=accepted, per_position=per)


@pytest.mark.parametrize("build", ["b10434", "b11434"])
def test_counters_of_a_recorded_engine_are_read(build: str) -> None:
    assert speculation(counters(f"{build}_metrics_n2")) == made(137, 269, 21, (21, 0))


def test_the_embedded_engine_has_the_same_counters() -> None:
    assert speculation(counters("embedded_metrics_n2")) == made(11, 22, 11, (7, 4))


@pytest.mark.parametrize("name", ["metrics_n0", "metrics_before_first_request_n2"])
def test_positions_are_unknown_before_the_first_draft(name: str) -> None:
    assert speculation(counters(f"b11434_{name}")) == made(0, 0, 0, None)


def test_a_build_without_the_counters_is_absent_with_a_reason() -> None:
    found = spec_counters("llamacpp:prompt_tokens_total 12\n")
    assert isinstance(found, Absent)
    assert "spec_decode_num_drafts_total" in found.reason


@pytest.mark.parametrize("value", ["-1", "NaN", "1.5", "+Inf", "1e300"])
def test_a_counter_that_is_no_count_is_absent(value: str) -> None:
    text = recorded.text("logs/b10434_metrics_n2.txt").replace(
        "drafts_total 137", f"drafts_total {value}"
    )
    assert isinstance(spec_counters(text), Absent)


def test_the_difference_counts_positions_from_zero_before_the_first_draft() -> None:
    before = counters("b10434_metrics_before_first_request_n2")
    moved = delta(before, counters("b10434_metrics_n2"))
    assert speculation(moved) == made(137, 269, 21, (21, 0))
    assert isinstance(moved, SpecCounters)
    assert (moved.generated, moved.decode_s) == (174, 0.971751)


@pytest.mark.parametrize("name", ["b10434_metrics_n0", "b11434_metrics_n0"])
def test_tokens_and_seconds_of_all_decoding_are_read_at_depth_0_too(name: str) -> None:
    found = counters(name)
    assert found.generated == 174
    assert found.decode_s in {0.674513, 0.066647}


def test_tokens_that_went_back_are_a_restart() -> None:
    before, after = counters("b11434_metrics_n0"), made(0, 0, 0, None)
    assert isinstance(delta(before, replace(after, generated=3, decode_s=0.1)), Absent)
    unknown = delta(before, after)
    assert isinstance(unknown, SpecCounters)
    assert (unknown.generated, unknown.decode_s) == (None, None)


@pytest.mark.parametrize("value", ["-1", "NaN", "+Inf"])
def test_seconds_that_are_none_are_not_known(value: str) -> None:
    text = recorded.text("logs/b10434_metrics_n2.txt").replace(
        "predicted_seconds_total 0.971751", f"predicted_seconds_total {value}"
    )
    found = spec_counters(text)
    assert isinstance(found, SpecCounters)
    assert (found.generated, found.decode_s) == (None, None)


def test_the_difference_of_two_readings_is_what_happened_between_them() -> None:
    assert delta(made(10, 20, 9, (6, 3)), made(14, 28, 14, (9, 5))) == made(4, 8, 5, (3, 2))


def test_nothing_between_two_readings_is_zero_and_not_absent() -> None:
    same = made(10, 20, 9, (6, 3))
    assert delta(same, same) == made(0, 0, 0, (0, 0))


def test_positions_that_were_hidden_stay_unknown() -> None:
    assert delta(made(1, 2, 1, None), made(2, 4, 2, (2, 1))) == made(1, 2, 1, None)
    assert delta(made(1, 2, 1, (1, 0)), made(2, 4, 2, None)) == made(1, 2, 1, None)


@pytest.mark.parametrize(
    "after",
    [
        made(9, 28, 14, (9, 5)),
        made(14, 19, 14, (9, 5)),
        made(14, 28, 8, (9, 5)),
        made(14, 28, 14, (5, 5)),
    ],
)
def test_a_counter_that_went_back_means_a_restart(after: SpecCounters) -> None:
    found = delta(made(10, 20, 9, (6, 3)), after)
    assert isinstance(found, Absent)
    assert "restarted" in found.reason


def test_a_shorter_list_of_positions_means_a_restart() -> None:
    assert isinstance(delta(made(1, 2, 1, (1, 1)), made(2, 4, 2, (2,))), Absent)


def test_labels_are_sorted_and_unescaped() -> None:
    text = r'a{y="1",x="say \"hi\"\n\\",} 2 1700000000' + "\n"
    assert parse(text) == {("a", (("x", 'say "hi"\n\\'), ("y", "1"))): 2.0}


@pytest.mark.parametrize(
    "line",
    ["", "# TYPE a counter", "a", "a b", "a 1_0", "a{x=1} 2", 'a{x="1" 2', "1a 2", "a 1 2 3"],
)
def test_a_line_that_is_no_sample_is_skipped(line: str) -> None:
    assert parse(f"{line}\nb 1\n") == {("b", ()): 1.0}


def test_all_samples_of_a_recorded_reading_are_kept() -> None:
    text = recorded.text("logs/b11434_metrics_n2.txt")
    assert len(parse(text)) == sum(line[:1] not in {"", "#"} for line in text.split("\n"))


def test_an_absurd_number_of_positions_is_cut() -> None:
    more = "".join(
        f'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} 1\n'
        for i in range(1000)
    )
    found = spec_counters(recorded.text("logs/b10434_metrics_n2.txt") + more)
    assert isinstance(found, SpecCounters)
    assert found.per_position == (1,) * 256
