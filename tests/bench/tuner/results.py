"""A run on disk: what was asked, on which machine it ran, and every outcome."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Final

from tests.bench.tuner.compare import Conditions
from tests.bench.tuner.strategies import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["Run", "labelled", "load", "merged", "save"]

_COLUMNS: Final = tuple(field.name for field in fields(Outcome))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished run.

    Attributes:
        command: What was typed.
        machine: Processor, cores, system.
        seed: Of the fleet.
        conditions: Of the fleet, as plain values.
        outcomes: By strategy, in the order of the machines.
    """

    command: str
    machine: str
    seed: str
    conditions: Mapping[str, float | bool]
    outcomes: Mapping[str, list[Outcome]]

    @classmethod
    def of(
        cls,
        outcomes: Mapping[str, list[Outcome]],
        *,
        command: str,
        machine: str,
        seed: str,
        conditions: Conditions,
    ) -> Run:
        """Describe what was measured."""
        return cls(
            command=command,
            machine=machine,
            seed=seed,
            conditions=asdict(conditions),
            outcomes=outcomes,
        )


def save(run: Run, path: Path) -> None:
    """Write a run; outcomes by column, because names would be most of the file."""
    content = {
        "command": run.command,
        "machine": run.machine,
        "seed": run.seed,
        "conditions": dict(run.conditions),
        "outcomes": {
            name: {column: [getattr(row, column) for row in rows] for column in _COLUMNS}
            for name, rows in run.outcomes.items()
        },
    }
    path.write_text(json.dumps(content, separators=(",", ":")) + "\n")


def load(path: Path) -> Run:
    """Read a run.

    Raises:
        KeyError: It is no saved run, or one of another version.
    """
    content = json.loads(path.read_text())
    return Run(
        command=content["command"],
        machine=content["machine"],
        seed=content["seed"],
        conditions=content["conditions"],
        outcomes={
            name: [
                Outcome(**dict(zip(_COLUMNS, row, strict=True)))
                for row in zip(*(columns[column] for column in _COLUMNS), strict=True)
            ]
            for name, columns in content["outcomes"].items()
        },
    )


def merged(runs: Sequence[Run]) -> dict[str, list[Outcome]]:
    """Outcomes of several runs over one fleet, which need not have the same length.

    Raises:
        ValueError: The runs differ in their seed or conditions, or share a strategy.
    """
    if any((run.seed, run.conditions) != (runs[0].seed, runs[0].conditions) for run in runs):
        msg = "runs over different fleets do not belong into one plot"
        raise ValueError(msg)
    return _joined([(name, rows) for run in runs for name, rows in run.outcomes.items()])


def labelled(runs: Sequence[Run]) -> dict[str, list[Outcome]]:
    """Outcomes of several runs, each strategy named with its seed and what is not the prior.

    Raises:
        ValueError: A strategy is twice there under equal seed and conditions.
    """
    return _joined(
        [(f"{name}; {_fleet(run)}", rows) for run in runs for name, rows in run.outcomes.items()]
    )


def _fleet(run: Run) -> str:
    prior = asdict(Conditions())
    changed = [f"{k} {v:g}" for k, v in run.conditions.items() if v != prior[k]]
    return ", ".join([f"seed {run.seed}", *changed])


def _joined(named: Sequence[tuple[str, list[Outcome]]]) -> dict[str, list[Outcome]]:
    names = [name for name, _ in named]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        msg = f"in more than one run: {', '.join(twice)}"
        raise ValueError(msg)
    return dict(named)
