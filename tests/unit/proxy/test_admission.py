from __future__ import annotations

from dataclasses import replace

from mtpd.proxy.admission import next_deadline, step
from mtpd.proxy.admission_types import (
    Admit,
    Arrive,
    Bound,
    Claim,
    Close,
    Done,
    Drained,
    Effect,
    Event,
    Failed,
    Forget,
    Hold,
    Leave,
    Lost,
    Mended,
    Order,
    Priority,
    Ready,
    Reject,
    RejectKind,
    Release,
    State,
    Stopped,
    Tick,
    WantEngine,
)

EMPTY = State(limit=3, timeout_s=120.0)
STRICT = replace(EMPTY, order=Order(batch_max_requests=0))
HIGH, LOW = Claim(priority=Priority.HIGH), Claim(priority=Priority.LOW)
ALONE = Claim(alone=True)


def play(state: State, *events: Event) -> tuple[State, list[Effect]]:
    effects: list[Effect] = []
    for event in events:
        state, new = step(state, event)
        effects += new
    return state, effects


def serving(profile: str = "a", capacity: int = 1) -> State:
    return play(EMPTY, Ready(profile, capacity))[0]


def test_the_first_request_asks_for_its_engine_and_runs_when_it_is_ready() -> None:
    state, effects = play(EMPTY, Arrive(1, "a", 0.0))
    assert effects == [WantEngine("a")]
    state, effects = play(state, Arrive(2, "a", 1.0))
    assert effects == []
    assert step(state, Ready("a", 2))[1] == (Admit(1), Admit(2))


def test_no_more_run_than_the_engine_has_slots() -> None:
    state, effects = play(serving(), Arrive(1, "a", 0.0), Arrive(2, "a", 0.0))
    assert effects == [Admit(1)]
    assert step(state, Done(1))[1] == (Admit(2),)


def test_another_model_waits_until_the_running_request_ends() -> None:
    state, effects = play(STRICT, Ready("a", 2), Arrive(1, "a", 0.0), Arrive(2, "b", 1.0))
    state, more = play(state, Arrive(3, "a", 2.0))
    assert (effects, more) == ([Admit(1)], [])
    state, effects = play(state, Done(1))
    assert effects == [WantEngine("b")]
    state, effects = play(state, Ready("b", 2))
    assert effects == [Admit(2)]
    assert step(state, Done(2))[1] == (WantEngine("a"),)


def test_without_batches_the_order_of_arrival_decides() -> None:
    state, _ = play(
        play(STRICT, Ready("a", 1))[0],
        Arrive(1, "a", 0),
        Arrive(2, "a", 1),
        Arrive(3, "b", 2),
        Arrive(4, "a", 3),
    )
    state, effects = play(state, Done(1), Done(2), Ready("b", 1), Done(3), Ready("a", 1))
    assert effects == [Admit(2), WantEngine("b"), Admit(3), WantEngine("a"), Admit(4)]


def test_waiters_of_the_serving_model_are_served_before_a_change() -> None:
    arrivals = [Arrive(n, "ab"[n % 2], float(n)) for n in range(6)]
    state, effects = play(replace(serving(), limit=9), *arrivals, Done(0), Done(2), Done(4))
    assert effects == [Admit(0), Admit(2), Admit(4), WantEngine("b")]
    assert play(state, Ready("b", 1), Done(1), Done(3))[1] == [Admit(1), Admit(3), Admit(5)]


def test_a_free_slot_of_the_serving_model_is_used_while_another_model_waits() -> None:
    state, _ = play(serving(capacity=2), Arrive(1, "a", 0), Arrive(2, "b", 1))
    assert step(state, Arrive(3, "a", 2.0))[1] == (Admit(3),)


def test_whoever_was_overtaken_often_enough_is_next() -> None:
    state = replace(serving(), limit=9, order=Order(batch_max_requests=2))
    state, _ = play(state, Arrive(1, "a", 0), Arrive(2, "b", 1))
    state, _ = play(state, *(Arrive(n, "a", 2.0) for n in (3, 4, 5)))
    assert play(state, Done(1), Done(3), Done(4))[1] == [Admit(3), Admit(4), WantEngine("b")]


def test_whoever_has_waited_long_enough_is_next() -> None:
    state = replace(serving(), order=Order(batch_max_s=20.0))
    state, _ = play(state, Arrive(1, "a", 0), Arrive(2, "b", 1.0), Arrive(3, "a", 2))
    assert play(state, Tick(20.9), Done(1))[1] == [Admit(3)]
    assert play(state, Tick(21.0), Done(1))[1] == [WantEngine("b")]


def test_a_change_is_worth_a_batch_also_where_everybody_has_waited_long() -> None:
    state = replace(serving(), limit=9, timeout_s=900.0)
    state, _ = play(state, Arrive(1, "a", 0), *(Arrive(n, "ba"[n % 2], 1.0) for n in range(2, 8)))
    state, effects = play(state, Tick(300.0), Done(1))
    assert effects == [WantEngine("b")]
    assert play(state, Ready("b", 1), Done(2), Done(4))[1] == [Admit(2), Admit(4), Admit(6)]


def test_a_crash_in_a_turn_begins_no_other_one() -> None:
    state = replace(serving(), order=Order(batch_max_requests=1))
    state, _ = play(state, Arrive(1, "a", 0), Arrive(2, "b", 1), Arrive(3, "a", 2), Done(1))
    state, _ = play(state, Arrive(4, "a", 3), Lost(), Ready("a", 1))
    assert step(state, Done(3))[1] == (WantEngine("b"),)


def test_who_waited_through_a_measurement_is_not_overtaken_anew() -> None:
    state = replace(serving(), order=Order(batch_max_requests=1))
    state, _ = play(state, Arrive(1, "a", 0), Arrive(2, "b", 1), Arrive(3, "a", 2), Done(1))
    state, _ = play(state, Arrive(4, "a", 3), Hold("x"), Done(3), Ready("c", 1), Ready("a", 1))
    assert step(state, Release())[1] == (WantEngine("b"),)


# Priorities -------------------------------------------------------------------------


def test_a_more_urgent_request_is_served_first() -> None:
    state, _ = play(
        serving(),
        Arrive(1, "a", 0),
        Arrive(2, "a", 1, LOW),
        Arrive(3, "a", 2),
        Arrive(4, "a", 3, HIGH),
    )
    assert play(state, Done(1), Done(4), Done(3))[1] == [Admit(4), Admit(3), Admit(2)]


def test_a_less_urgent_request_does_not_overtake_one_for_another_model() -> None:
    state, _ = play(serving(), Arrive(1, "a", 0), Arrive(2, "a", 1), Arrive(3, "b", 2, HIGH))
    assert step(state, Done(1))[1] == (WantEngine("b"),)


def test_a_patient_request_is_taken_for_more_urgent_ones() -> None:
    state = replace(serving(), order=Order(age_s=30.0), limit=9)
    state, _ = play(state, Arrive(1, "a", 0), Arrive(2, "a", 1, LOW), Arrive(3, "a", 30.9))
    assert play(state, Tick(30.95), Done(1))[1] == [Admit(3)]
    assert play(state, Tick(31.0), Done(1))[1] == [Admit(2)]
    state, _ = play(state, Arrive(4, "a", 60.5, HIGH))
    assert play(state, Tick(60.5), Done(1))[1] == [Admit(4)]
    assert play(state, Tick(61.0), Done(1))[1] == [Admit(2)]


# Requests that run alone ------------------------------------------------------------


def test_a_request_that_wants_to_be_alone_waits_for_the_others_and_they_for_it() -> None:
    state, effects = play(serving(capacity=3), Arrive(1, "a", 0), Arrive(2, "a", 1, ALONE))
    state, more = play(state, Arrive(3, "a", 2))
    assert (effects, more) == ([Admit(1)], [])
    state, effects = play(state, Done(1))
    assert effects == [Admit(2)]
    assert step(state, Arrive(4, "a", 3))[1] == ()
    assert step(state, Done(2))[1] == (Admit(3),)
    assert step(state, Leave(2))[1] == (Admit(3),)


# The limit --------------------------------------------------------------------------


def test_a_request_that_can_run_at_once_does_not_count_as_a_waiter() -> None:
    state = play(replace(EMPTY, limit=0), Ready("a", 1))[0]
    state, effects = play(state, Arrive(1, "a", 0.0))
    assert effects == [Admit(1)]
    assert [type(e) for e in step(state, Arrive(2, "a", 0.0))[1]] == [Reject]


def test_one_more_than_the_limit_is_turned_away_and_told_when_to_come_back() -> None:
    state, _ = play(EMPTY, *(Arrive(n, "a", float(n)) for n in range(3)))
    state, effects = play(state, Arrive(9, "a", 7.5))
    assert effects == [Reject(9, RejectKind.FULL, "3 requests are waiting already", 8)]
    assert len(state.waiting) == 3


def test_a_held_device_lets_nobody_past_a_full_queue() -> None:
    state = play(replace(EMPTY, limit=0), Ready("a", 1), Hold("x"))[0]
    state, effects = play(state, Arrive(1, "a", 0.0))
    assert [type(e) for e in effects] == [Reject]
    assert state.waiting == ()


def test_a_waiter_whose_time_is_up_gets_503_and_the_others_stay() -> None:
    state, _ = play(EMPTY, Arrive(1, "a", 0.0), Arrive(2, "a", 5.0))
    assert next_deadline(state) == 120.0
    assert step(state, Tick(119.9))[1] == ()
    state, effects = play(state, Tick(120.0))
    assert effects == [Reject(1, RejectKind.DEADLINE, "no engine was free for a within 120 s", 30)]
    assert next_deadline(state) == 125.0


def test_a_late_waiter_learns_what_held_the_device() -> None:
    state, _ = play(serving(), Hold("the depths of a are being measured"), Arrive(1, "a", 0.0))
    (reject,) = step(state, Tick(500.0))[1]
    assert isinstance(reject, Reject)
    assert reject.why.endswith("within 120 s: the depths of a are being measured")


def test_when_the_blocking_waiter_is_late_the_next_one_runs() -> None:
    state, _ = play(serving(), Arrive(1, "a", 0.0), Arrive(2, "b", 1.0), Arrive(3, "a", 100.0))
    state, effects = play(state, Tick(121.0))
    assert [e for e in effects if not isinstance(e, Reject)] == []
    assert step(state, Done(1))[1] == (Admit(3),)


def test_a_client_that_leaves_the_queue_is_never_admitted() -> None:
    state, effects = play(serving(), Arrive(1, "a", 0), Arrive(2, "a", 0), Leave(2), Done(1))
    assert effects == [Admit(1)]
    assert state.running == frozenset()


def test_a_client_that_leaves_while_it_runs_frees_the_slot() -> None:
    _, effects = play(serving(), Arrive(1, "a", 0), Arrive(2, "a", 0), Leave(1))
    assert effects == [Admit(1), Admit(2)]


def test_a_hold_is_told_once_when_nothing_runs_any_more() -> None:
    state, effects = play(serving(capacity=2), Arrive(1, "a", 0), Hold("x"), Arrive(2, "a", 0))
    assert effects == [Admit(1)]
    state, effects = play(state, Done(1), Tick(1.0), Ready("a", 2))
    assert effects == [Drained()]
    assert step(state, Release())[1] == (Admit(2),)


def test_a_hold_of_an_idle_device_has_it_at_once() -> None:
    assert step(serving(), Hold("x"))[1] == (Drained(),)


def test_after_a_hold_another_engine_is_changed_back_for_those_who_wait() -> None:
    state, _ = play(serving(), Hold("x"), Arrive(1, "a", 0), Ready("b", 1))
    assert step(state, Release())[1] == (WantEngine("a"),)


def test_a_lost_engine_keeps_its_waiters_until_it_is_back() -> None:
    state, effects = play(serving(), Arrive(1, "a", 0), Arrive(2, "a", 0), Lost(), Done(1))
    assert effects == [Admit(1)]
    assert step(state, Ready("a", 1))[1] == (Admit(2),)


def test_a_lost_engine_does_not_block_another_model() -> None:
    _, effects = play(serving(), Lost(), Arrive(1, "b", 0))
    assert effects == [WantEngine("b")]


def test_an_engine_that_was_stopped_comes_back_for_the_next_request() -> None:
    _, effects = play(serving(), Stopped(), Arrive(1, "a", 0))
    assert effects == [WantEngine("a")]


def test_a_failed_start_turns_its_waiters_away_at_once_and_others_stay() -> None:
    state, _ = play(EMPTY, Arrive(1, "b", 0), Arrive(2, "a", 0), Arrive(3, "b", 0))
    failed = Failed(profile="b", why="b is truncated", now=1.0, retry_after_s=60.0)
    state, effects = play(state, failed)
    assert effects == [
        Reject(1, RejectKind.ENGINE, "b is truncated", 60),
        Reject(3, RejectKind.ENGINE, "b is truncated", 60),
        WantEngine("a"),
    ]


def test_a_profile_that_failed_is_not_tried_again_at_once() -> None:
    failed = Failed(profile="b", why="no", now=10.0, retry_after_s=60.0)
    state, _ = play(EMPTY, failed)
    assert play(state, Arrive(1, "b", 30.0))[1] == [Reject(1, RejectKind.ENGINE, "no", 40)]
    assert play(state, Arrive(1, "b", 70.0))[1] == [WantEngine("b")]
    assert play(state, Ready("b", 1), Arrive(1, "b", 30.0))[1] == [Admit(1)]


def test_while_the_old_engine_is_brought_back_nothing_else_is_started() -> None:
    failed = Failed(profile="b", why="no", now=0.0, retry_after_s=60.0, restoring="a")
    state, effects = play(EMPTY, Arrive(1, "b", 0), failed, Arrive(2, "c", 0))
    assert effects == [WantEngine("b"), Reject(1, RejectKind.ENGINE, "no", 60)]
    assert step(state, Ready("a", 1))[1] == (WantEngine("c"),)


def test_after_the_end_everybody_is_turned_away() -> None:
    state, _ = play(serving(), Arrive(1, "a", 0), Arrive(2, "a", 0))
    state, effects = play(state, Close("the daemon is stopping"), Arrive(3, "a", 0))
    assert effects == [
        Reject(2, RejectKind.CLOSED, "the daemon is stopping", 1),
        Reject(3, RejectKind.CLOSED, "the daemon is stopping", 1),
    ]
    assert state.running == {1}


def test_who_waits_for_a_model_that_is_taken_away_is_turned_away_and_the_next_is_served() -> None:
    state, _ = play(serving("a"), Arrive(1, "a", 0.0), Arrive(2, "b", 0.0), Arrive(3, "a", 0.0))
    state, effects = play(state, Forget("b", "b is gone"))
    assert effects == [Reject(2, RejectKind.REMOVED, "b is gone", 1)]
    assert step(state, Done(1))[1] == (Admit(3),)


def test_nobody_answers_for_a_model_that_is_taken_away_so_the_next_one_is_asked_for() -> None:
    state, effects = play(EMPTY, Arrive(1, "b", 0.0), Arrive(2, "a", 0.0))
    assert effects == [WantEngine("b")]
    state, effects = play(state, Forget("b", "b is gone"))
    assert effects == [Reject(1, RejectKind.REMOVED, "b is gone", 1), WantEngine("a")]


def test_a_model_that_failed_is_tried_again_once_it_is_configured_otherwise() -> None:
    failed = Failed(profile="a", why="no", now=0.0, retry_after_s=60.0)
    state, effects = play(EMPTY, failed, Arrive(1, "a", 1.0))
    assert effects == [Reject(1, RejectKind.ENGINE, "no", 59)]
    _, effects = play(state, Mended("a"), Arrive(2, "a", 1.0))
    assert effects == [WantEngine("a")]


def test_what_runs_on_a_model_that_is_taken_away_goes_on() -> None:
    state, _ = play(serving("a"), Arrive(1, "a", 0.0))
    state, effects = play(state, Forget("a", "a is gone"))
    assert effects == []
    assert state.running == {1}


def test_other_limits_hold_for_those_who_come_from_then_on() -> None:
    state, _ = play(serving("a"), Arrive(1, "a", 0.0), Arrive(2, "a", 0.0), Bound(1, 5.0, Order()))
    state, effects = play(state, Arrive(3, "a", 1.0))
    assert isinstance(effects[0], Reject)
    assert next_deadline(state) == EMPTY.timeout_s
    state, _ = play(state, Leave(2), Arrive(4, "a", 2.0))
    assert next_deadline(state) == 7.0


def test_another_order_holds_for_those_who_wait_already() -> None:
    state, _ = play(STRICT, Ready("a", 2), Arrive(1, "a", 0), Arrive(2, "b", 1), Arrive(3, "a", 2))
    assert step(state, Bound(3, 120.0, Order(batch_max_requests=1)))[1] == (Admit(3),)


def test_one_caller_may_have_only_so_many_in_the_queue() -> None:
    state = replace(EMPTY, order=Order(max_waiting_per_caller=1))
    mine, other = Claim(caller="mine"), Claim(caller="other")
    state, _ = play(state, Arrive(1, "a", 0.0, mine), Arrive(2, "a", 1.0, other))
    state, effects = play(state, Arrive(3, "a", 2.5, mine))
    why = "the token mine has as many requests waiting as it may (1)"
    assert effects == [Reject(3, RejectKind.CALLER, why, 3)]
    assert play(state, Arrive(4, "a", 3.0))[1] == []
    assert play(state, Leave(1), Arrive(4, "a", 3.0, mine))[1] == []


def test_a_caller_at_its_limit_may_still_use_a_free_slot() -> None:
    state = replace(EMPTY, order=Order(max_waiting_per_caller=1))
    mine = Claim(caller="mine")
    state, _ = play(state, Ready("a", 2), Arrive(1, "a", 0, mine), Arrive(2, "b", 0, mine))
    assert step(state, Arrive(3, "a", 1.0, mine))[1] == (Admit(3),)
