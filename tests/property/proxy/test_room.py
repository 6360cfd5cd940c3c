"""What must go so that an engine fits: never too much, never what stays, and it ends."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mtpd.proxy.room import Demand, Go, Holder, Need, Refuse, Source, Unload, next_step
from mtpd.proxy.seats import Seat
from mtpd.types import Absent, NotApplicable
from mtpd.units import HOST, MIB

UNKNOWN = Absent("nobody counts it")
sizes = st.integers(0, 40).map(lambda n: n * MIB)
maybe = st.one_of(sizes, st.just(UNKNOWN))
needs = st.one_of(st.builds(Need, sizes, st.sampled_from(Source)), st.just(UNKNOWN))


@st.composite
def holders(draw: st.DrawFn) -> list[Holder]:
    return [
        Holder(
            seat=Seat(HOST, name),
            profile=name,
            held=draw(needs),
            loaded=draw(st.booleans()),
            busy=draw(st.booleans()),
            same_group=draw(st.booleans()),
            persistent=draw(st.booleans()),
            stuck=draw(st.booleans()),
            used_at=draw(st.floats(0, 10)),
        )
        for name in draw(st.lists(st.sampled_from("abcde"), unique=True, max_size=5))
    ]


demands = st.builds(
    Demand,
    name=st.just("x@0"),
    need=needs,
    free=st.one_of(maybe, st.just(NotApplicable("no device"))),
    own_bytes=sizes,
    unloads=st.one_of(st.none(), st.just("(default)")),
)


def measured(mib: int) -> Need:
    return Need(mib * MIB, Source.MEASURED)


def stays(holder: Holder) -> bool:
    return holder.persistent or holder.stuck


def size(holder: Holder) -> int:
    return holder.known_bytes


def without(demand: Demand, gone: Holder) -> Demand:
    """The demand once one has gone, which gave back what it was counted with."""
    if not isinstance(demand.free, int) or not gone.loaded:
        return demand
    return replace(demand, free=demand.free + size(gone))


def played(demand: Demand, there: list[Holder]) -> tuple[list[Holder], list[Holder], Go | Refuse]:
    """Unload until it is decided: who went, who stays, and the outcome."""
    gone: list[Holder] = []
    while True:
        step = next_step(demand, there)
        if not isinstance(step, Unload):
            return gone, there, step
        gone.append(step.holder)
        demand = without(demand, step.holder)
        there = [one for one in there if one is not step.holder]


@given(demands, holders())
def test_it_ends_and_nothing_goes_that_stays(demand: Demand, there: list[Holder]) -> None:
    gone, stay, outcome = played(demand, there)
    assert not any(stays(one) for one in gone)
    if isinstance(outcome, Refuse):
        assert any(stays(one) for one in stay), "only what stays refuses anybody"


@given(demands, holders())
def test_it_goes_only_alone_or_uncounted_or_where_it_fits(
    demand: Demand, there: list[Holder]
) -> None:
    if not isinstance(next_step(demand, there), Go) or not there:
        return
    if isinstance(demand.free, NotApplicable):
        return
    assert isinstance(demand.need, Need)
    assert isinstance(demand.free, int)
    promised = sum(size(one) for one in there if not one.loaded)
    assert demand.need.count + promised <= demand.free + demand.own_bytes


@given(demands, holders())
def test_alone_it_is_left_to_its_own_start(demand: Demand, there: list[Holder]) -> None:
    assert next_step(demand, []) == Go()
    free = [replace(one, persistent=False, stuck=False) for one in there]
    gone, stay, outcome = played(demand, free)
    assert outcome == Go()
    assert len(gone) + len(stay) == len(there)


@given(demands, holders())
def test_an_exclusive_group_leaves_only_its_own_and_what_stays(
    demand: Demand, there: list[Holder]
) -> None:
    demand = replace(demand, unloads="g", free=NotApplicable("no device"))
    _, stay, outcome = played(demand, there)
    assert outcome == Go()
    assert stay == [one for one in there if stays(one) or one.same_group]


@given(st.integers(1, 200), st.integers(0, 40), holders())
def test_by_bytes_none_is_unloaded_that_need_not_go(
    need_mib: int, free_mib: int, there: list[Holder]
) -> None:
    demand = Demand(name="x@0", need=measured(need_mib), free=free_mib * MIB)
    there = [
        replace(one, held=measured(size(one) // MIB + 1), loaded=True, busy=False) for one in there
    ]
    gone, _, outcome = played(demand, there)
    if outcome != Go():
        assert gone == [], "nothing is unloaded in vain"
        return
    assert isinstance(demand.free, int)
    back = sum(size(one) for one in gone)
    if need_mib * MIB <= demand.free + back:
        for one in gone:
            assert demand.free + back - size(one) < need_mib * MIB


@given(demands, holders())
def test_idle_ones_go_before_busy_ones_unless_they_would_not_do(
    demand: Demand, there: list[Holder]
) -> None:
    step = next_step(replace(demand, need=UNKNOWN, unloads=None), there)
    if isinstance(step, Unload):
        may_go = [one for one in there if not stays(one)]
        assert (step.holder.busy, step.holder.used_at) == min(
            (one.busy, one.used_at) for one in may_go
        )


def holder(
    name: str,
    mib: int | None,
    *,
    used_at: float = 0.0,
    loaded: bool = True,
    busy: bool = False,
    persistent: bool = False,
) -> Holder:
    return Holder(
        seat=Seat(HOST, name),
        profile=name,
        held=UNKNOWN if mib is None else measured(mib),
        used_at=used_at,
        loaded=loaded,
        busy=busy,
        persistent=persistent,
    )


def test_the_least_recently_used_goes_first_unless_a_later_one_does_alone() -> None:
    demand = Demand(name="x@0", need=measured(10), free=2 * MIB)
    old, new = holder("old", 3, used_at=1.0), holder("new", 9, used_at=2.0)
    step = next_step(demand, [new, old])
    assert isinstance(step, Unload)
    assert step.holder is new, "without the old one's memory there is enough"
    assert step.reason == "x@0 needs 10 MiB of memory (measured) and 2 MiB are free"
    old, new = holder("old", 8, used_at=1.0), holder("new", 9, used_at=2.0)
    step = next_step(demand, [new, old])
    assert isinstance(step, Unload)
    assert step.holder is old


def test_a_refusal_names_who_holds_how_much() -> None:
    demand = Demand(name="x@0", need=measured(10), free=2 * MIB)
    stays = holder("e", 7, persistent=True)
    refused = next_step(demand, [stays])
    assert refused == Refuse(
        "x@0 needs 10 MiB of memory (measured) and 2 MiB are free,"
        " beside e (7 MiB measured, persistent)"
    )
    unknown = next_step(replace(demand, need=UNKNOWN), [stays])
    assert unknown == Refuse(
        "x@0 is not loaded beside others: what it needs is not known (nobody counts it);"
        " e (7 MiB measured, persistent) stays"
    )


def test_what_an_engine_that_starts_again_is_going_to_hold_is_kept_for_it() -> None:
    demand = Demand(name="x@0", need=measured(5), free=9 * MIB)
    assert next_step(demand, [holder("e", 4, loaded=False, persistent=True)]) == Go()
    assert isinstance(next_step(demand, [holder("e", 5, loaded=False, persistent=True)]), Refuse)
    step = next_step(demand, [holder("e", None, loaded=False)])
    assert isinstance(step, Unload)
    assert "what e is going to hold is not known" in step.reason


@given(st.sampled_from(Source), st.integers(2, 40))
def test_a_sentence_says_how_much_is_needed_and_who_says_so(source: Source, mib: int) -> None:
    demand = Demand(name="x@0", need=Need(mib * MIB, source), free=0)
    refused = next_step(demand, [holder("e", 7, persistent=True)])
    assert isinstance(refused, Refuse)
    assert refused.reason.startswith(f"x@0 needs {mib} MiB of memory ({source}) and 0 MiB are free")
