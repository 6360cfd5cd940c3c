"""However other engines of ours come and go, each is judged as if it were alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from mtpd.engine.memory_look import Figure, MemoryLook, fell, free, grown, taken, unreturned
from mtpd.supervise.shares import Shares
from mtpd.types import Absent, ProcessMemory, Value
from mtpd.units import MIB, EngineId

TOTAL = 16_000


@dataclass
class Card:
    """A card with engines on it, seen with or without its processes."""

    visible: bool
    shares: Shares = field(default_factory=Shares)
    held: dict[str, int] = field(default_factory=dict)
    before: dict[str, MemoryLook] = field(default_factory=dict)

    def look(self, name: str, *, there: bool = True) -> MemoryLook:
        used = 100 + sum(self.held.values())
        raw = MemoryLook(
            at_s=0.0,
            vram_total_bytes=Value(TOTAL * MIB, "sysfs"),
            vram_used_bytes=Value(used * MIB, "sysfs"),
            gtt_used_bytes=Value((10 + 2 * len(self.held)) * MIB, "sysfs"),
            processes=self._processes(),
            engine=frozenset({pid_of(name)}) if there else frozenset(),
        )
        return self.shares.framed(raw, EngineId(name))

    def start(self, name: str, mib: int) -> None:
        self.before[name] = self.look(name, there=False)
        self.shares.begin(EngineId(name), name, self.before[name])
        self.held[name] = mib
        self.shares.note(EngineId(name), self.look(name), settled=False)

    def end(self, name: str) -> int | None:
        del self.held[name]
        left = unreturned(self.before.pop(name), self.look(name))
        self.shares.end(EngineId(name))
        return left

    def _processes(self) -> tuple[ProcessMemory, ...] | Absent:
        if not self.visible:
            return Absent("fdinfo: permission denied")
        return tuple(
            ProcessMemory(pid=pid_of(name), name=name, vram_bytes=Value(mib * MIB, "kfd"))
            for name, mib in self.held.items()
        )


def pid_of(name: str) -> int:
    return 1000 + ord(name)


moves = st.lists(st.tuples(st.sampled_from("bcd"), st.integers(70, 3_000)), max_size=12)


@given(st.booleans(), moves, st.integers(70, 3_000))
def test_what_others_do_changes_nothing_for_one(
    visible: bool,  # noqa: FBT001 - hypothesis passes it by position
    others: list[tuple[str, int]],
    mine: int,
) -> None:
    card = Card(visible)
    if others:  # one that was there before
        card.start(*others[0])
    card.start("a", mine)
    ready = card.look("a")
    for name, mib in others[1:]:
        if name in card.held:
            assert card.end(name) == 0
        else:
            card.start(name, mib)
        now = card.look("a")
        found = taken(card.before["a"], now)
        assert isinstance(found, Figure)
        assert found.count == mine * MIB
        difference = fell(ready, now)
        assert difference is not None
        assert difference.count == 0
        mapped = grown(ready, now)
        assert mapped is not None
        assert mapped.count == 0
        assert card.shares.held("a") == mine * MIB
        assert card.shares.room_bytes == (TOTAL - 100) * MIB, "if all of ours were stopped"
        beside = sum(mib for key, mib in card.held.items() if key != "a")
        used_by_all = 100 + mine + beside
        assert free(now.vram_total_bytes, now.vram_used_bytes) == (TOTAL - used_by_all) * MIB
        assert now.beside_bytes == beside * MIB
    assert card.end("a") == 0


def test_what_is_owed_is_nobodys_room_and_is_not_counted_as_taken_by_the_next() -> None:
    card = Card(visible=False)
    card.start("b", 3_000)
    card.shares.owe(EngineId("b"))
    card.start("a", 500)
    assert card.shares.profiles == {"a"}
    assert card.shares.held("b") is None
    assert card.shares.room_bytes == (TOTAL - 3_100) * MIB
    found = taken(card.before["a"], card.look("a"))
    assert isinstance(found, Figure)
    assert found.count == 500 * MIB
    assert found.line.endswith("less 3000 MiB of other engines")


def test_a_withdrawn_start_leaves_what_it_was_seen_to_hold() -> None:
    card = Card(visible=False)
    card.start("a", 500)
    card.shares.begin(EngineId("b"), "b", card.look("b", there=False))
    for name in ("a", "b", "c"):
        card.shares.withdraw(EngineId(name))
    assert card.shares.profiles == {"a"}
