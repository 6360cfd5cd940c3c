from __future__ import annotations

from mtpd.proxy.pace import KEPT, MAX_S, Pace


def test_nothing_is_forecast_before_the_first_request_has_ended() -> None:
    pace = Pace()
    assert pace.wait_s(waiting=3, running=1) is None
    assert pace.retry_after_s(7, waiting=3, running=1) == 7


def test_the_queue_takes_as_long_as_its_requests_shared_among_the_slots() -> None:
    pace = Pace()
    for used in (2.0, 4.0):
        pace.ended(used)
    assert pace.wait_s(waiting=10, running=1) == 30.0
    assert pace.wait_s(waiting=10, running=2) == 15.0
    assert pace.wait_s(waiting=0, running=2) == 0.0


def test_the_header_is_whole_seconds_between_what_is_known_and_two_minutes() -> None:
    pace = Pace()
    pace.ended(2.5)
    assert pace.retry_after_s(1, waiting=1, running=1) == 3
    assert pace.retry_after_s(9, waiting=1, running=1) == 9
    assert pace.retry_after_s(1, waiting=1000, running=1) == MAX_S


def test_an_old_model_is_forgotten() -> None:
    pace = Pace()
    pace.ended(1000.0)
    for _ in range(KEPT):
        pace.ended(1.0)
    assert pace.wait_s(waiting=1, running=1) == 1.0


def test_a_queue_that_moved_tells_by_itself_how_fast_changes_of_engine_included() -> None:
    pace = Pace()
    pace.ended(2.0)
    for now in (10.0, 12.0, 24.0):  # the last one waited for another engine, too
        pace.admitted(arrived=5.0, now=now)
    assert pace.wait_s(waiting=3, running=1) == 3 * 7.0


def test_requests_that_came_to_an_idle_engine_say_nothing_of_a_queue() -> None:
    pace = Pace()
    pace.ended(2.0)
    for now in (10.0, 500.0):
        pace.admitted(arrived=now, now=now)
    assert pace.wait_s(waiting=3, running=1) == 6.0


def test_a_place_is_free_when_one_of_those_that_run_has_ended() -> None:
    pace = Pace()
    assert pace.place_after_s(2, running=3) == 2
    pace.ended(12.0)
    assert pace.place_after_s(1, running=3) == 4
