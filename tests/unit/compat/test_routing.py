from __future__ import annotations

import pytest

from tests.unit.compat.translating import faults, swap, told

MODELS = """\
models:
  a: {cmd: 'llama-server --port ${PORT} -m /a'}
  b: {cmd: 'llama-server --port ${PORT} -m /b'}
"""
MATRIX = (
    "sets of models are not solved for: groups say what may run together, and what fits is"
    " decided by bytes; see [groups.NAME]"
)


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("groups: {g: {swap: true, exclusive: true, members: [a, b]}}", []),
        ("groups: {g: {members: [a, b]}}", []),
        ("groups: {g: {swap: false, members: [a]}}", []),
        ("groups: {g: {exclusive: false, members: [a, b]}}", []),
        ("groups: {g: {members: [a, c]}}", ["4: groups.g.members.1: there is no model 'c'"]),
        ("matrix: {vars: {x: a}}", [f"4: matrix: {MATRIX}"]),
        (
            "routing: {router: {use: matrix, settings: {matrix: {vars: {x: a}}}}}",
            [f"4: routing.router.settings.matrix: {MATRIX}"],
        ),
        (
            "routing: {scheduler: {settings: {fifo: {priority: {a: 1}}}}}",
            ["4: routing.scheduler: requests are served by mtpd's own rule of turns"],
        ),
        ("groups: {}\nmatrix:\nrouting: {}", []),
        ("groups: {g: 3}", []),
    ],
)
def test_what_runs_at_once(text: str, lost: list[str]) -> None:
    made = swap(f"{MODELS}{text}\n")
    assert faults(made) == []
    assert told(made) == lost


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "groups: {g: {members: [a]}}\nmatrix: {vars: {x: a}}",
            "5: matrix: groups and matrix exclude each other",
        ),
        (
            "groups: {g: {members: [a]}}\nrouting: {router: {use: group}}",
            "5: routing: routing.router and groups exclude each other",
        ),
        (
            "groups: {g: {members: [a, a]}}",
            "4: groups.g.members.1: 'a' is already in the group 'g'",
        ),
        (
            "groups:\n  g: {members: [a]}\n  h: {members: [b, a]}",
            "6: groups.h.members.1: 'a' is already in the group 'g'",
        ),
    ],
)
def test_what_llama_swap_refuses(text: str, fault: str) -> None:
    assert faults(swap(f"{MODELS}{text}\n")) == [fault]


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        (
            "groups: {g: {swap: false, exclusive: false, persistent: true, members: [a, b]}}",
            {"g": {"members": ["a", "b"], "swap": False, "exclusive": False, "persistent": True}},
        ),
        (
            "routing: {router: {settings: {groups: {g: {swap: false, members: [a]}}}}}",
            {"g": {"members": ["a"], "swap": False}},
        ),
        (
            "groups: {'one two': {members: [a]}, one-two: {members: [b]}}",
            {"one-two": {"members": ["a"]}, "one-two-2": {"members": ["b"]}},
        ),
        ("groups: {g: {members: [gone]}}", None),
        ("groups: {g: {members: []}}", None),
        ("groups: {'': {members: [a]}}", {"group": {"members": ["a"]}}),
    ],
)
def test_groups_are_groups(text: str, groups: dict[str, object] | None) -> None:
    made = swap(f"{MODELS}{text}\n")
    assert faults(made) == []
    assert made.tree.get("groups") == groups


def test_a_member_is_named_as_its_profile_and_one_that_is_left_out_is_no_member() -> None:
    made = swap(
        "models:\n"
        "  org/a: {cmd: 'llama-server --port ${PORT} -m /a'}\n"
        "  b: {cmd: ''}\n"
        "groups: {g: {members: [org/a, b]}}\n"
    )
    assert made.tree.get("groups") == {"g": {"members": ["org-a"]}}
    assert made.lines["groups", "g", "members"] == 4
