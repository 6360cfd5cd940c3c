"""The configuration in force: the frozen one and the one that can be replaced."""

from __future__ import annotations

from mtpd.config.live import Configuration, LiveConfig
from mtpd.config.model import Config, Profile, ServerConfig

OLD = Config(profiles={"a": Profile(name="a", model="/a.gguf", aliases=("first",))})
NEW = Config(
    profiles={"b": Profile(name="b", model="/b.gguf", aliases=("first",))},
    server=ServerConfig(max_waiting=3),
)


def named(config: Configuration) -> list[str]:
    return list(config.profiles)


def test_who_holds_it_reads_the_new_one_after_a_replacement() -> None:
    live = LiveConfig(OLD)
    assert named(live) == named(OLD) == ["a"]
    live.replace(NEW)
    assert named(live) == ["b"]
    assert live.server.max_waiting == 3
    found = live.profile_for("first")
    assert found is not None
    assert found.name == "b"


def test_a_snapshot_stays_what_it_was() -> None:
    live = LiveConfig(OLD)
    before = live.now
    live.replace(NEW)
    assert before is OLD
    assert before.now is OLD
    assert live.now is NEW
