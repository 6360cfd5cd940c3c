"""The status screen: am I resident, at what depth, is it the right one, what comes next.

Pure of input and output. What one looks for stands first and per engine: its choice, its
traffic, what the daemon would do with it, and the evidence of where its model lies.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.text import Text

from mtpd.cli.cells import arm_label, clock_text, duration, grid, line, state
from mtpd.cli.live_lines import live_lines
from mtpd.cli.memory import memory_sentence, need_sentence
from mtpd.cli.render import choice_origin, decision_sentence, headed, progress_text
from mtpd.cli.short_ids import short_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from mtpd.live_views import LiveProfileView
    from mtpd.views import (
        ChoiceView,
        ConfigFileView,
        DecisionView,
        EngineView,
        FailureView,
        ResidencyView,
        SpentView,
        StatusView,
    )

__all__ = ["status_panel"]

REASON: Final = 240
"""Characters of a reason; ``mtpctl explain`` has the whole way to it."""
EVIDENCE: Final = 2
"""Lines of evidence where all is as wanted; ``mtpctl logs MODEL --evidence`` has all."""
_AS_WANTED: Final = {"resident", "host"}
_HOST: Final = "host"


def status_panel(view: StatusView) -> Group:
    """The daemon on one screen."""
    head = Text.assemble(
        (f"mtpd {view.version}", "bold"),
        f"  pid {view.pid}  up {duration(view.uptime_s)}  tuning {view.mode}",
    )
    parts: list[RenderableType] = [head, Text("")]
    told = _Told()
    for engine in view.engines:
        parts += [*_engine(engine, view, told), Text("")]
    return Group(*parts, _daemon(view, told))


class _Told:
    """Sentences that stand on the screen already; each stands there once."""

    def __init__(self) -> None:
        self.choices: set[str] = set()
        self.live: set[str] = set()
        self.next = False
        self._reasons: set[int | str] = set()

    def reason(self, choice: ChoiceView) -> str | None:
        """The reason of a choice, unless it was told."""
        key = choice.reason if choice.decision_id is None else choice.decision_id
        if key in self._reasons:
            return None
        self._reasons.add(key)
        more = "" if choice.decision_id is None else f" (mtpctl explain {choice.decision_id})"
        return textwrap.shorten(choice.reason, REASON, placeholder=f" …{more}")


def _engine(view: EngineView, status: StatusView, told: _Told) -> Iterator[RenderableType]:
    made = grid()
    yield _head(view, status.choices)
    if view.arm is not None:
        for choice in status.choices:
            if choice.arm.profile == view.profile:
                _choice(made, choice, told, why=True)
    _live(made, [one for one in status.live if one.profile == view.profile], told)
    if view.arm is not None:
        _memory(made, view, status)
        _residency(made, view.profile, view.residency)
    if view.failure is not None:
        _failure(made, view.failure)
    if view.pid is not None or view.failure is not None:
        pid = "" if view.pid is None else f"pid {view.pid}, "
        line(made, "process", f"{pid}start {view.starts}, since {clock_text(view.since)}")
    if made.row_count:
        yield made


def _head(view: EngineView, choices: Sequence[ChoiceView]) -> Text:
    """Model, state, depth, residency and device; the chosen depth where it is another."""
    head = Text.assemble((view.profile, "bold"), "  ", state(view.state), "  ")
    if view.arm is None:
        never = "it does not run" if view.starts else "it was not started yet"
        return head.append(f"on {view.device}; {never}")
    head.append(f"depth {view.arm.depth} ({view.arm.drafter})  ")
    head.append(state(view.residency.state)).append(f"  on {view.device}")
    chosen = [one.arm for one in choices if one.arm.profile == view.profile]
    if chosen and view.arm not in chosen:
        head.append(f"  not as chosen: depth {chosen[0].depth}", style="yellow")
    return head


def _choice(made: Table, choice: ChoiceView, told: _Told, *, why: bool) -> None:
    told.choices.add(choice.subject)
    said = choice_origin(choice)
    said += "" if choice.decision_id is None else f", decision {choice.decision_id}"
    line(made, "choice", f"{choice.subject}: {arm_label(choice.arm)} ({said})")
    reason = told.reason(choice) if why else None
    if reason is not None:
        line(made, "", reason)


def _live(made: Table, found: Sequence[LiveProfileView], told: _Told) -> None:
    for live in found:
        if live.profile not in told.live:
            told.live.add(live.profile)
            for name, value in live_lines(live):
                told.next = told.next or name == "next"
                line(made, name, value)


def _memory(made: Table, view: EngineView, status: StatusView) -> None:
    for needs in [one for one in status.memory if one.arm == view.arm][:1]:
        line(made, "memory", memory_sentence(needs.memory, _others(view, status)))
        if needs.held is not None:
            line(made, "holds", need_sentence(needs.held))


def _others(view: EngineView, status: StatusView) -> dict[str, int | None]:
    """What every other engine on the same device holds; None where that is not known."""
    held = {one.arm: one.held.count_bytes for one in status.memory if one.held is not None}
    return {
        one.profile: None if one.arm is None else held.get(one.arm)
        for one in status.engines
        if one.id != view.id and one.device == view.device and one.pid is not None
    }


def _residency(made: Table, profile: str, view: ResidencyView) -> None:
    rests = "" if view.confidence == "reported" else f" ({view.confidence})"
    line(made, "residency", f"{view.reason}{rests}")
    if view.contradiction is not None:
        line(made, "", f"against it: {view.contradiction}")
    most = EVIDENCE if view.state in _AS_WANTED else len(view.evidence)
    for evidence in view.evidence[:most]:
        line(made, "", f"{evidence.says}: {' '.join(evidence.line.split())}")
    more = len(view.evidence) - most
    if more > 0:
        line(made, "", f"and {more} more: mtpctl logs {profile} --evidence")


def _failure(made: Table, failure: FailureView) -> None:
    again = "" if failure.retry_in_s is None else f" (next try in {failure.retry_in_s:.0f} s)"
    line(made, "failure", f"{failure.failure}: {failure.reason}{again}")
    if failure.hint:
        line(made, "", failure.hint)


def _daemon(view: StatusView, told: _Told) -> Table:
    made = grid()
    for choice in view.choices:
        if choice.subject not in told.choices:  # of what does not run
            _choice(made, choice, told, why=False)
    _live(made, view.live, told)
    _refused(made, view)
    for one in () if view.config is None else _config_lines(view.config):
        line(made, "config", one)
    if view.spent is not None:
        line(made, "cost", _cost(view.spent))
    if not told.next:
        line(made, "next", _next(view))
    last = view.last_decision
    if last is not None and not _is_told(last, view):
        said = headed(last.act, last.subject, decision_sentence(last))
        line(made, "decision", f"{last.id}: {said}")
    if view.operation is not None:
        now = view.operation
        line(made, "operation", f"{short_id(now.id)}: {now.kind} {now.state}, {progress_text(now)}")
    _server(made, view)
    return made


def _cost(spent: SpentView) -> str:
    """What the latest choice took; what stands beside the daemon's log is in the journal."""
    what = f"the latest choice, {spent.subject}, decision {spent.decision_id}"
    when = f"{clock_text(spent.at)}"
    if not spent.starts:
        return f"{what}: nothing, it compares what was measured before ({when})"
    starts = "1 engine start" if spent.starts == 1 else f"{spent.starts} engine starts"
    return f"{what}: {starts}, {duration(spent.seconds)} ({when})"


def _next(view: StatusView) -> str:
    """What the daemon would do next where no model's traffic says it, and why."""
    for live in view.live:
        if live.next is not None:
            return live.next.says
    if view.operation is not None:
        return "nothing by itself until the operation has ended"
    untold = [choice.subject for choice in view.choices if not (choice.measured or choice.pinned)]
    does = {
        "idle": "while nobody asks, changes what traffic proves to be worth it (docs/live.md)",
        "observe": "changes nothing by itself: mode is observe, it only says what it would do",
        "off": "changes nothing by itself ([tuning] mode is off)",
    }.get(view.mode, "changes nothing by itself")
    return does if not untold else f"{does}; not measured yet: mtpctl tune {untold[0]}"


def _is_told(last: DecisionView, view: StatusView) -> bool:
    """Whether the latest decision stands on the screen already: as a choice, or as what is next."""
    chosen = {choice.decision_id for choice in view.choices}
    coming = {live.next.says for live in view.live if live.next is not None}
    return last.id in chosen or last.reason in coming


def _server(made: Table, view: StatusView) -> None:
    """What does not change from hour to hour, and what waits."""
    queue = view.queue
    waiting = f"{queue.waiting} of at most {queue.limit} waiting, {queue.in_flight} in flight"
    line(made, "queue", waiting)
    for gate in view.gates:
        if gate.state != "not_applicable":
            line(made, "gate", f"{gate.name} {gate.state}: {gate.reason}")
    if view.hardware is not None or any(one.device != _HOST for one in view.engines):
        line(made, "hardware", view.hardware or "no profile named")
    line(made, "engine", view.engine_binary)
    line(made, "listens on", f"http://{view.listen}")
    line(made, "control", view.control_socket)


def _config_lines(view: ConfigFileView) -> list[str]:
    """What of the configuration on the disk is not in force."""
    told = []
    if view.invalid_since is not None:
        told = [f"on disk is invalid since {clock_text(view.invalid_since)}:", *view.problems]
    if view.needs_restart:
        told.append(f"after a restart of the daemon: {', '.join(view.needs_restart)}")
    return told


def _refused(made: Table, view: StatusView) -> None:
    """Models and requests that are not served, and what else is not as it should be."""
    for one in view.degraded:
        line(made, "degraded", one)
    for one in view.unusable:
        line(made, "unusable", one)
    for request in view.quarantine:
        line(made, "quarantine", f"{request.id}: {request.reason}")
