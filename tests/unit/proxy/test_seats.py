from __future__ import annotations

from mtpd.config.model import Config, Group, Profile
from mtpd.proxy.seats import DEFAULT, Seat, Seating
from mtpd.units import HOST


def seating(*groups: Group) -> Seating:
    config = Config(
        groups={group.name: group for group in groups},
        profiles={name: Profile(name=name, model="/m") for name in ("a", "b", "c", "d")},
    )
    return Seating(config, device_for=lambda _: HOST)


def test_models_of_no_group_share_one_seat() -> None:
    made = seating()
    assert made.seat("a") == made.seat("b") == Seat(HOST)
    assert made.seats() == (Seat(HOST),)
    assert made.group(Seat(HOST)) == DEFAULT


def test_a_group_that_swaps_is_one_seat_and_in_one_that_does_not_each_member_has_its_own() -> None:
    swaps = Group(name="s", members=("a", "b"))
    together = Group(name="t", members=("c", "d"), swap=False, persistent=True)
    made = seating(swaps, together)
    assert made.seat("a") == made.seat("b") == Seat(HOST, "s")
    assert made.seat("c") != made.seat("d")
    assert [str(seat) for seat in made.seats()] == ["s", "t/c", "t/d"]
    assert made.group(made.seat("c")) == together


def test_the_seat_of_a_group_that_is_gone_goes_by_the_default_rules() -> None:
    assert seating().group(Seat(HOST, "gone", "a")) == DEFAULT
