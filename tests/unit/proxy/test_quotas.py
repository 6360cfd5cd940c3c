from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtpd.proxy.outcomes import RejectedError
from mtpd.proxy.quotas import Quotas, Visit


def quotas(per_caller: int = 0, per_model: int = 0) -> Quotas:
    return Quotas(per_caller=lambda: per_caller, per_model=lambda _: per_model)


def test_one_more_of_a_token_than_its_limit_is_turned_away_and_others_are_not() -> None:
    kept = quotas(per_caller=1)
    with kept.counted(Visit("a", "laptop")):
        with pytest.raises(RejectedError, match="token laptop") as caught:
            kept.counted(Visit("b", "laptop")).__enter__()
        with kept.counted(Visit("a", "phone")):
            pass
    assert (caught.value.kind, caught.value.status) == ("caller", 429)
    with kept.counted(Visit("b", "laptop")):
        pass


def test_requests_without_a_token_have_no_limit_of_their_own() -> None:
    kept = quotas(per_caller=1)
    with kept.counted(Visit("a", None)), kept.counted(Visit("a", None)):
        pass


def test_one_more_for_a_model_than_its_limit_is_turned_away_whoever_asks() -> None:
    kept = quotas(per_model=2)
    with kept.counted(Visit("a", "x")), kept.counted(Visit("a", None)):
        with pytest.raises(RejectedError, match=r"a has .* may \(2\)") as caught:
            kept.counted(Visit("a", "y")).__enter__()
        with kept.counted(Visit("b", "x")):
            pass
    assert (caught.value.kind, caught.value.status) == ("model", 429)


def test_those_that_run_are_told_from_those_that_wait() -> None:
    kept = quotas()
    first, second = Visit("a", "x", runs=True), Visit("a", "y")
    with kept.counted(first), kept.counted(second):
        assert kept.running(Visit("a", "y"), "model") == 1
        assert kept.running(Visit("a", "y"), "caller") == 0
        assert kept.running(Visit("b", "x"), "caller") == 1
        assert kept.running(Visit("a", "x"), "full") == 0


VISITS = st.builds(Visit, st.sampled_from("ab"), st.none() | st.sampled_from("xy"))


@given(st.lists(VISITS, max_size=20), st.integers(0, 3), st.integers(0, 3))
def test_the_open_requests_never_exceed_a_limit(
    visits: list[Visit], per_caller: int, per_model: int
) -> None:
    kept, taken = quotas(per_caller, per_model), list[Visit]()
    with ExitStack() as stack:
        for visit in visits:
            own = [v for v in taken if v.caller == visit.caller is not None]
            same = [v for v in taken if v.profile == visit.profile]
            full = 0 < per_caller <= len(own) or 0 < per_model <= len(same)
            try:
                stack.enter_context(kept.counted(visit))
            except RejectedError:
                assert full
            else:
                assert not full
                taken.append(visit)
    for visit in visits[: min(per_caller or 1, per_model or 1)]:
        with kept.counted(visit):
            pass
