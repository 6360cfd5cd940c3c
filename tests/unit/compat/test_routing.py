from __future__ import annotations

import pytest

from tests.unit.compat.translating import faults, swap, told

MODELS = """\
models:
  a: {cmd: 'llama-server --port ${PORT} -m /a'}
  b: {cmd: 'llama-server --port ${PORT} -m /b'}
"""
ONE = "one engine runs per device here, so a model that is asked for ends the other"


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("groups: {g: {swap: true, exclusive: true, members: [a, b]}}", []),
        ("groups: {g: {members: [a, b]}}", []),
        ("groups: {g: {swap: false, members: [a]}}", []),
        ("groups: {g: {exclusive: false, members: [a, b]}}", []),
        ("groups: {g: {swap: false, members: [a, b]}}", [f"4: groups.g.swap: {ONE}"]),
        (
            "groups: {g: {exclusive: false, members: [a]}, h: {members: [b]}}",
            [f"4: groups.g.exclusive: {ONE}"],
        ),
        (
            "groups: {g: {persistent: true, members: [a]}}",
            [f"4: groups.g.persistent: {ONE}"],
        ),
        ("groups: {g: {members: [a, c]}}", ["4: groups.g.members.1: there is no model 'c'"]),
        ("matrix: {vars: {x: a}}", [f"4: matrix: {ONE}"]),
        (
            "routing: {router: {use: matrix, settings: {matrix: {vars: {x: a}}}}}",
            [f"4: routing.router.settings.matrix: {ONE}"],
        ),
        (
            "routing: {router: {settings: {groups: {g: {swap: false, members: [a, b]}}}}}",
            [f"4: routing.router.settings.groups.g.swap: {ONE}"],
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
