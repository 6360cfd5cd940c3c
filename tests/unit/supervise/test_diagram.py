"""The state diagram in docs/supervision.md is what the machine does.

The edges are found by playing the machine; after a change of the rules run this file as
a program and put its output between the marks in the document.
"""

from __future__ import annotations

import re
from pathlib import Path

from mtpd.supervise.states import label
from tests.property.supervise.test_machine_world import SEEDS, World, drawn

DOCUMENT = Path(__file__).parents[3] / "docs" / "supervision.md"


def diagram() -> str:
    """Every change of the state's name that some order of events leads to."""
    edges: dict[tuple[str, str], set[str]] = {}
    for seed in SEEDS:
        world = Recorder()
        for action, number in drawn(seed):
            world.act(action, number)
        for old, event, new in world.moves:
            edges.setdefault((old, new), set()).add(event)
    lines = [f"    {old} --> {new}: {', '.join(sorted(edges[old, new]))}" for old, new in edges]
    return "\n".join(["stateDiagram-v2", "    [*] --> stopped", *sorted(lines)])


class Recorder(World):
    """A world that remembers which event changed the name of the state."""

    def __init__(self) -> None:
        super().__init__()
        self.moves: set[tuple[str, str, str]] = set()

    def deliver(self) -> None:
        if self.inbox:
            event, old = type(self.inbox[0]).__name__, label(self.engine.state)
            super().deliver()
            if (new := label(self.engine.state)) != old:
                self.moves.add((old, event, new))


def test_the_diagram_in_the_documentation_is_up_to_date() -> None:
    found = re.search(r"```mermaid\n(.*?)\n```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    assert found.group(1) == diagram()


if __name__ == "__main__":
    print(diagram())  # noqa: T201 - that is what it is run for
