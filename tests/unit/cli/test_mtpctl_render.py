"""The tables, apart from any daemon."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from mtpd.cli import explaining, lists, render
from mtpd.cli.cells import ALPHA, NONE, clock_text, duration, ranges, size
from mtpd.cli.live_lines import live_lines
from mtpd.cli.mtpctl import cli
from mtpd.cli.operations import model_report, operation_report
from mtpd.cli.status_screen import status_panel
from mtpd.memory_views import NeedView
from mtpd.views import (
    ArmView,
    ChoiceView,
    EvidenceView,
    FailureView,
    GateView,
    OperationView,
    ProgressView,
)
from tests.fakes import views
from tests.fakes.backend import ENGINE, measured
from tests.fakes.values import operation_view
from tests.unit.cli.support import check_golden
from tuner.probe import BY_MEANS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mtpd.views import DepthRowView, StatusView


def drawn(what: RenderableType, *, width: int = 80) -> str:
    # A console that would take markup, as another program's may.
    console = Console(file=io.StringIO(), width=width)
    console.print(what)
    file = console.file
    assert isinstance(file, io.StringIO)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def bare_row(depth: int = 0, **changes: object) -> DepthRowView:
    row = dataclasses.replace(
        views.depth_row(2),
        arm=views.arm(depth=depth),
        workloads={"short": 30.0},
        acceptance=(),
        tokens_per_step=None,
        note="",
    )
    return dataclasses.replace(row, **changes)  # type: ignore[arg-type]  # test table


def test_who_asked_is_shown_where_it_is_known() -> None:
    explained = views.explanation()
    by_ops = dataclasses.replace(explained.decision, actor="token ops")
    assert "asked by" not in drawn(explaining.explanation(explained))
    text = drawn(explaining.explanation(dataclasses.replace(explained, decision=by_ops)))
    assert "  asked by  token ops\n" in text
    operation = operation_view()
    for actor, shown in ((None, NONE), ("token ops", "token ops")):
        text = drawn(lists.operation_grid(dataclasses.replace(operation, actor=actor)))
        assert any(line.split() == ["by", *shown.split()] for line in text.splitlines())


def test_a_small_depth_table_is_as_agreed() -> None:
    rows = (
        bare_row(0, workloads={"short": 39.4, "prose": 40.1}, decode_tps=39.7, residency="host"),
        bare_row(
            1,
            workloads={"short": 31.2},
            decode_tps=None,
            tokens_per_step=1.9,
            acceptance=views.acceptance(0.904),
            residency="host",
            note="slower than depth 0 by 21 %",
        ),
    )
    check_golden("depth_small", drawn(render.depth_table(rows, chosen=rows[0].arm, title="tiny")))


def test_the_marked_arm_is_said_once() -> None:
    row = bare_row(note="best")
    text = drawn(render.depth_table([row, bare_row(1)], chosen=row.arm, mark="best"))
    assert text.count("best") == 1
    assert "chosen" not in text


def test_what_was_only_measured_is_not_called_chosen() -> None:
    decision = dataclasses.replace(views.decision(), act="measure")
    view = dataclasses.replace(views.explanation(), decision=decision)
    assert "chosen" not in drawn(explaining.explanation(view))
    assert drawn(explaining.explanation(views.explanation())).count("chosen") == 1


def test_the_explanation_goes_from_what_was_asked_to_the_replay() -> None:
    text = drawn(explaining.explanation(views.explanation()))
    places = [
        text.index(part)
        for part in (
            "what was asked, and why",
            "depth 3 is where the operator wanted to start",
            "every depth that fits was measured",
            "engine starts, and where the model lay",
            "layer 0 is on the CPU: layer 0 CPU",
            "median tok/s by prompt",
            "acceptance by position",
            "from tokens and step time to a speed",
            "a verification row costs 0.41 (0.38 to 0.44) of a step",
            "what is out",
            "rule",
            "from 2 recorded repetitions: the same decision",
        )
    ]
    assert places == sorted(places)
    assert text.index("does not fit (1 layer on the CPU)") < text.index("does not pay")
    assert max(map(len, text.splitlines())) <= 80


def test_a_replay_that_differs_is_said_loudly_and_one_that_cannot_be_had_plainly() -> None:
    differs = views.replay("differs", "taken again, the decision differs in its arm: x")
    view = dataclasses.replace(views.explanation(), replay=differs)
    assert "NOT THE SAME DECISION: taken again" in drawn(explaining.explanation(view))
    gone = views.replay("not_recorded", "the inputs were not recorded then")
    old = dataclasses.replace(
        views.model_chain(), asks=None, stop=None, out=None, note="not recorded then"
    )
    view = dataclasses.replace(views.explanation(), replay=gone, models=(old,))
    text = drawn(explaining.explanation(view))
    assert "not possible: the inputs were not recorded then" in text
    assert "not recorded then" in text.replace("were not recorded then", "")
    assert "what was asked" not in text


@pytest.mark.parametrize(
    ("kind", "applied", "word"),
    [("tune", True, "chosen"), ("tune", False, "best"), ("probe", False, None)],
)
def test_a_report_says_chosen_only_of_what_is_applied(
    kind: str, *, applied: bool, word: str | None
) -> None:
    operation = OperationView(
        id="op-1",
        kind=kind,
        state="done",
        params={},
        progress=ProgressView(done=3, total=3, note=""),
        created_at="",
        started_at=None,
        ended_at=None,
        result={**measured("default", kind), "applied": applied},
        error=None,
    )
    text = drawn(operation_report(operation))
    assert [w for w in ("chosen", "best") if w in text] == ([] if word is None else [word])


def test_what_an_operator_set_is_shown_with_what_was_measured_and_the_way_back() -> None:
    arm = ArmView(profile="alpha", drafter="mtp", depth=1, p_min=0.0)
    choice = ChoiceView(
        subject="alpha", arm=arm, reason="", decision_id=2, measured=False, pinned=True
    )
    unmeasured = "set by an operator; no measured choice: mtpctl tune alpha"
    assert render.choice_origin(choice) == unmeasured
    choice = dataclasses.replace(choice, measured_arm=dataclasses.replace(arm, depth=3))
    said = "set by an operator; measured choice: depth 3, mtpctl switch alpha --measured goes back"
    assert render.choice_origin(choice) == said
    status = dataclasses.replace(views.status(), choices=(choice,))
    assert f"({said}, decision 2)" in " ".join(drawn(status_panel(status)).split())
    done: dict[str, Any] = {
        "engine": {"profile": "alpha", "state": "ready", "arm": {"depth": 1}},
        "choice": {"pinned": True, "measured_arm": {"depth": 3}},
    }
    text = lists.outcome(operation_view(kind="switch", state="done", result=done))
    assert text == (
        "alpha is ready at depth 1, set by an operator; "
        "mtpctl switch alpha --measured goes back to the measured depth 3"
    )
    done = {"engine": done["engine"], "prompt_cache": "prompt cache lost: 383 tokens"}
    text = lists.outcome(operation_view(kind="switch", state="done", result=done))
    assert text == "alpha is ready at depth 1 (prompt cache lost: 383 tokens)"


def test_a_model_that_cannot_be_served_and_a_mere_measurement_are_said_in_one_line() -> None:
    last = dataclasses.replace(views.decision(99), act="measure", reason="depth 2 is the best")
    bad = "beta: gone.gguf does not exist"
    status = dataclasses.replace(views.status(), unusable=(bad,), last_decision=last)
    text = " ".join(drawn(status_panel(status)).split())
    assert f"unusable {bad}" in text
    said = "measured only, nothing was changed; depth 2 is the best"
    assert said in text
    assert render.decision_sentence(dataclasses.replace(last, act="keep")) == last.reason
    assert "measured only" in drawn(lists.decision_table([last]))


def test_a_model_whose_depth_an_operator_set_is_not_shown_as_chosen() -> None:
    model = views.model()
    assert model.choice is not None
    deeper = dataclasses.replace(model.choice.arm, depth=3)
    choice = dataclasses.replace(
        model.choice, arm=deeper, measured=False, pinned=True, measured_arm=model.choice.arm
    )
    pinned = dataclasses.replace(model, choice=choice)
    shown = " ".join(drawn(model_report(pinned)).split())
    assert "depth 3 set by an operator; measured choice: depth 2, mtpctl switch" in shown
    assert "chosen" not in shown
    assert "3 set" in " ".join(drawn(lists.model_table([pinned])).split())
    assert "chosen depth 2" in drawn(model_report(model))


def test_a_report_says_which_limit_cut_it_short() -> None:
    result = measured("default", "tune")
    decisions = result["decisions"]
    assert isinstance(decisions, list)
    last = decisions[-1]
    assert isinstance(last, dict)
    said = "cut short by --max-minutes: what decision 3 measured is compared, too"
    probed = "depth 0: 332.0 tok/s (330.0 to 334.0), 1.00 tokens per step, predicted"
    last["evidence"] = [said, probed, "a number that the table shows"]
    result["not_started"] = ["alpha@0 is expected at 332 tok/s of 540, does not pay"]
    text = drawn(operation_report(operation_view(kind="tune", state="done", result=result)))
    shown = " ".join(text.split())
    assert f"{last['subject']}: {said}" in shown
    assert f"{last['subject']}: {probed}" in shown
    assert "not started: alpha@0 is expected at 332 tok/s of 540, does not pay" in shown
    assert "a number that" not in text


def test_an_unknown_number_is_a_dash_and_never_a_zero() -> None:
    text = drawn(render.depth_table([bare_row(decode_tps=None, workloads={"short": 1.0})]))
    assert " 0.0" not in text
    assert text.count(NONE) == 2


def test_tokens_per_joule_are_a_column_where_the_power_was_read_at_all() -> None:
    dark = bare_row(energy_note="the energy of 1 of 1 prompts was not measured")
    assert "J" not in drawn(render.depth_table([dark]))
    text = drawn(render.depth_table([bare_row(tokens_per_joule=0.3351), dark]))
    assert "0.335" in text
    assert NONE in text.splitlines()[-1].split()


def test_what_makes_a_row_doubtful_is_said() -> None:
    row = bare_row(same_text=False, repetitions=10, excluded=2, outliers=1)
    text = drawn(render.depth_table([row]))
    assert "other text; 2 of 12 excluded; 1 slow outlier" in text
    assert "other text" not in drawn(render.depth_table([bare_row(same_text=None)]))


def test_text_from_outside_is_not_markup() -> None:
    row = bare_row(note="[red]x[/red] [/nope]")
    assert "[red]x[/red] [/nope]" in drawn(render.depth_table([row]))
    engine = dataclasses.replace(
        views.engine(),
        residency=dataclasses.replace(
            views.residency(), evidence=(EvidenceView(line="[/bold] x", says="[bold]"),)
        ),
        failure=FailureView(
            failure="oom_vram", reason="[no]", hint="use [less]", exit_code=1, retry_in_s=8.0
        ),
    )
    text = drawn(status_panel(dataclasses.replace(views.status(), engines=(engine,))))
    assert "[bold]: [/bold] x" in text
    assert "oom_vram: [no] (next try in 8 s)" in text
    assert "use [less]" in text


@given(
    st.lists(
        st.builds(
            bare_row,
            st.integers(min_value=0, max_value=5),
            workloads=st.dictionaries(
                st.sampled_from(views.WORKLOADS), st.floats(0, 999), min_size=1
            ),
            acceptance=st.lists(st.floats(0, 1), max_size=5).map(lambda a: views.acceptance(*a)),
            decode_tps=st.none() | st.floats(0, 999),
            tokens_per_joule=st.none() | st.floats(0.001, 9),
            residency=st.sampled_from(["resident", "evicted", "unknown"]),
            note=st.sampled_from(["", "chosen", "layer 0 runs on the CPU", "x" * 70]),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_every_depth_table_keeps_its_numbers_within_80_columns(rows: list[DepthRowView]) -> None:
    text = drawn(render.depth_table(rows))
    assert max(map(len, text.splitlines())) <= 80
    for row in rows:
        assert all(f"{speed:.1f}" in text for speed in row.workloads.values())


def test_acceptance_is_shown_with_interval_and_counts() -> None:
    text = drawn(render.alpha_table(views.depth_rows()[:1]))
    assert f"{ALPHA}2       88.5%  86.5% to 90.5%           850 / 961" in text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["event", "at", "decision", "operation", "measurement", "arm"]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=10,
    )
)
def test_any_event_has_a_line(data: object) -> None:
    assert lists.event_line("x.y", data).count("x.y") >= 1  # type: ignore[arg-type]  # any JSON


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "2/3 step 2"),
        ({"error": {"detail": "It broke."}}, "It broke."),
        ({"result": {"decisions": [{"reason": "a"}, {"reason": "b"}], "depths": []}}, "b"),
        ({"result": ENGINE}, "qwen3.6-27b-b2 is ready at depth 2"),
        ({"result": {"engines": []}}, "no engine runs"),
        ({"result": {"engines": [{"profile": "a", "state": "stopped"}]}}, "no engine runs"),
        ({"result": {"engines": [{"profile": "a", "state": "ready"}]}}, "still running: a"),
        ({"result": {"new": 1}}, "done"),
    ],
)
def test_what_came_of_an_operation_is_one_sentence(changes: dict[str, Any], text: str) -> None:
    operation = OperationView(
        id="op-1",
        kind="tune",
        state="running",
        params={},
        progress=ProgressView(done=2, total=3, note="step 2"),
        created_at="",
        started_at=None,
        ended_at=None,
        result=None,
        error=None,
    )
    assert lists.outcome(dataclasses.replace(operation, **changes)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3661, "1 h 1 min"), (7200, "2 h"),
     (90061, "1 d 1 h")],
)  # fmt: skip
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_sizes_and_times_are_short() -> None:
    assert (size(None), size(4144608), size(15 * 2**30)) == (NONE, "4.0 MiB", "15.00 GiB")
    assert clock_text("2026-11-29T22:44:27.123Z") == "11-29 22:44:27"
    assert clock_text("never") == "never"


def test_every_command_is_documented() -> None:
    docs = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
    for name, command in cli.commands.items():
        assert f"`{name}" in docs
        own = [
            parameter
            for parameter in command.params
            if isinstance(parameter, click.Option)
            and parameter.name not in {"as_json", "url", "socket_path", "detach"}
        ]
        missing = [p.name for p in own if not any(f"{o}" in docs for o in p.opts)]
        assert not missing, name


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [([], ""), ([4], "4"), ([1, 2, 3], "1-3"), ([9, 1, 2, 6, 5], "1-2,5-6,9")],
)
def test_runs_of_numbers_are_drawn_together(numbers: list[int], shown: str) -> None:
    assert ranges(numbers) == shown


def test_what_a_residency_rests_on_and_what_speaks_against_it_are_shown() -> None:
    found = dataclasses.replace(
        views.residency("spilled"),
        confidence="suspected",
        contradiction="other witnesses say resident: all layers are offloaded",
    )
    engine = dataclasses.replace(views.engine(), residency=found)
    text = " ".join(
        drawn(
            status_panel(dataclasses.replace(views.status(), engines=(engine,))), width=200
        ).split()
    )
    assert "recurrent path is fused (suspected)" in text
    assert "against it: other witnesses say resident: all layers are offloaded" in text


@pytest.mark.parametrize("name", ["vram_unrecovered", "gpu_failed"])
def test_an_engine_whose_card_is_not_free_is_shown_with_who_holds_it(name: str) -> None:
    held = FailureView(
        failure=name,
        reason="held by: 4711 llama-server 9000 MiB",
        hint="end what holds it",
        exit_code=None,
        retry_in_s=None,
    )
    engine = dataclasses.replace(views.engine(name), failure=held)
    text = drawn(status_panel(dataclasses.replace(views.status(), engines=(engine,))))
    assert f"{name}: held by: 4711 llama-server 9000 MiB" in text


@pytest.mark.parametrize(
    ("starts", "said"), [(0, "it was not started yet"), (2, "it does not run")]
)
def test_an_engine_that_does_not_run_says_whether_it_ever_did(starts: int, said: str) -> None:
    stopped = dataclasses.replace(views.engine(), state="stopped", arm=None, pid=None)
    view = dataclasses.replace(
        views.status(), engines=(dataclasses.replace(stopped, starts=starts),)
    )
    assert said in drawn(status_panel(view))


def test_live_traffic_shows_the_classes_that_matter_and_says_what_is_not_known() -> None:
    live = views.live()
    small = [
        dataclasses.replace(live.classes[0], name=f"class {number}", share=0.01)
        for number in range(5)
    ]
    (arm,) = live.classes[0].arms
    blind = dataclasses.replace(arm, decode_tps=None, unidentified="the positions were not counted")
    classes = (*small, dataclasses.replace(live.classes[1], arms=(blind,)))
    shown = dataclasses.replace(live, classes=classes, excluded={}, stale=(), moved=(), next=None)
    text = drawn(status_panel(dataclasses.replace(views.status(), live=(shown,))))
    assert f"long/code/greedy 69%: depth 0 {NONE} tok/s" in text
    assert f"{ALPHA} unknown: the positions were not counted" in " ".join(text.split())
    assert "and 2 classes with fewer tokens" in text
    assert "left out" not in text


def test_a_model_without_traffic_has_a_line_only_if_something_is_to_be_done() -> None:
    live = views.live()
    assert live.next is not None
    idle = dataclasses.replace(
        live,
        requests=0,
        excluded={},
        classes=(),
        moved=(),
        stale=(),
        next=dataclasses.replace(live.next, act="keep"),
    )
    told = (
        dataclasses.replace(idle, next=live.next),
        dataclasses.replace(idle, requests=1),
        dataclasses.replace(idle, excluded={"cancelled": 1}),
        dataclasses.replace(idle, moved=live.moved),
        dataclasses.replace(idle, stale=live.stale),
    )
    assert [*live_lines(idle), *live_lines(dataclasses.replace(idle, next=None))] == []
    assert all(dict(live_lines(one))["live"].startswith(live.profile) for one in told)


def test_the_status_fits_80_columns_whatever_models_are_called() -> None:
    view = views.status()
    long = "org-with-a-long-name-" * 6
    (engine,) = view.engines
    refused = dataclasses.replace(views.quarantined(), profile=long, reason=f"died of {long}")
    text = drawn(
        status_panel(
            dataclasses.replace(
                view,
                engines=(engine, dataclasses.replace(engine, profile=long)),
                quarantine=(refused,),
                live=(views.live(), dataclasses.replace(views.live(), profile=long)),
            )
        )
    )
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("live  ") == text.count("  next  ") == 2
    assert "quarantine" in text


@pytest.mark.parametrize(
    ("need", "said"),
    [
        (NeedView(count_bytes=812 * 2**20, source="bound", reason="r"), "812 MiB (upper bound: r)"),
        (NeedView(count_bytes=3 * 2**20, source="measured", reason="r"), "3 MiB (measured: r)"),
        (NeedView(count_bytes=None, source="unknown", reason="why"), "not known: why"),
    ],
)
def test_what_is_held_and_needed_is_shown_with_its_source(need: NeedView, said: str) -> None:
    status = views.status()
    (memory,) = status.memory
    shown = dataclasses.replace(status, memory=(dataclasses.replace(memory, held=need),))
    assert f"holds {said}" in " ".join(drawn(status_panel(shown)).split())
    model = dataclasses.replace(views.model(), need=need)
    assert f"takes {said}" in " ".join(drawn(model_report(model)).split())


SECOND = "bge-small"


def beside(
    *, held_mib: int | None, device: str = "0000:03:00.0", pid: int | None = 4244
) -> StatusView:
    """The status with a second engine, and what it holds."""
    status = views.status()
    arm = dataclasses.replace(views.arm(depth=0), profile=SECOND)
    engine = dataclasses.replace(
        views.engine(), id="second", profile=SECOND, arm=arm, pid=pid, device=device
    )
    count_bytes = None if held_mib is None else held_mib * 2**20
    held = NeedView(count_bytes=count_bytes, source="measured", reason="seen") if pid else None
    (memory,) = status.memory
    assert memory.memory.predicted is not None
    small = dataclasses.replace(
        memory.memory,
        predicted=dataclasses.replace(memory.memory.predicted, total_bytes=310 * 2**20),
        left_bytes=(15100 - 310) * 2**20,
    )
    found = dataclasses.replace(memory, arm=arm, memory=small, held=held)
    engines = (*status.engines, engine)
    return dataclasses.replace(status, engines=engines, memory=(memory, found), choices=(), live=())


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (beside(held_mib=300), "fits: 118 MiB left beside bge-small (300 MiB)"),
        (beside(held_mib=None), "fits: at most 418 MiB left beside bge-small (not known)"),
        (
            beside(held_mib=500),
            "fits: 418 MiB left if alone; beside bge-small (500 MiB) 82 MiB too many",
        ),
        (beside(held_mib=300, device="0000:04:00.0"), "fits: 418 MiB left holds"),
        (beside(held_mib=None, pid=None), "fits: 418 MiB left holds"),
    ],
)
def test_what_is_left_is_what_the_others_on_the_card_leave(
    status: StatusView, expected: str
) -> None:
    first = " ".join(drawn(status_panel(status)).split()).partition(SECOND + " ready")[0]
    assert f"memory 14682 of 15100 MiB predicted, {expected}" in first


def test_what_does_not_even_fit_alone_says_so_beside_others() -> None:
    status = beside(held_mib=300)
    lacking = dataclasses.replace(
        status.memory[0].memory, verdict="evicts", reason="12 MiB lacking", left_bytes=-12 * 2**20
    )
    memory = (dataclasses.replace(status.memory[0], memory=lacking), status.memory[1])
    text = " ".join(drawn(status_panel(dataclasses.replace(status, memory=memory))).split())
    assert "does not fit: 12 MiB lacking, even without bge-small (300 MiB)" in text


def test_two_engines_on_one_card_look_so() -> None:
    check_golden("status_two", drawn(status_panel(beside(held_mib=300))))


def status_text(**changes: Any) -> str:
    return " ".join(drawn(status_panel(dataclasses.replace(views.status(), **changes))).split())


def test_a_depth_that_is_not_the_chosen_one_is_told_at_once() -> None:
    deeper = dataclasses.replace(views.engine(), arm=views.arm(depth=3))
    assert "on 0000:03:00.0 not as chosen: depth 2" in status_text(engines=(deeper,))
    assert "not as chosen" not in status_text()


def test_a_reason_is_told_once_and_not_at_any_length() -> None:
    pool = dataclasses.replace(views.choice(), reason="long " * 100)
    text = status_text(choices=(pool, dataclasses.replace(pool, subject="again")))
    assert text.count("long long") > 10
    assert text.count("… (mtpctl explain 17)") == 1
    assert "choice again: qwen3.6-27b-b2@2 (measured, decision 17)" in text
    assert text.count("long") < 60


def test_a_decision_that_is_what_comes_next_is_told_once() -> None:
    live = views.live()
    assert live.next is not None
    kept = dataclasses.replace(views.decision(18), act="keep", reason=live.next.says)
    assert status_text(last_decision=kept).count("would measure but") == 1
    other = dataclasses.replace(kept, reason="another one")
    assert "decision 18: keep default: another one" in status_text(last_decision=other)


def test_what_does_not_run_has_its_choice_in_one_line() -> None:
    stopped = dataclasses.replace(views.engine(), state="stopped", arm=None, pid=None)
    text = status_text(engines=(stopped,))
    assert "choice default: qwen3.6-27b-b2@2 (measured, decision 17)" in text
    assert "the only depth that is resident" not in text
    assert "process" not in text


def test_more_evidence_is_where_its_command_says() -> None:
    seen = views.residency()
    many = dataclasses.replace(seen, evidence=seen.evidence * 3)
    text = status_text(engines=(dataclasses.replace(views.engine(), residency=many),))
    assert "and 4 more: mtpctl logs qwen3.6-27b-b2 --evidence" in text
    assert text.count("model buffer size") == 1
    worse = dataclasses.replace(many, state="evicted")
    text = status_text(engines=(dataclasses.replace(views.engine(), residency=worse),))
    assert text.count("model buffer size") == 3, "all that speaks against it is there at once"
    assert "more: mtpctl logs" not in text


def test_a_gate_that_does_not_apply_takes_no_line() -> None:
    gates = (
        GateView(name="cooling", state="not_applicable", reason="there is no GPU"),
        GateView(name="cap", state="failed", reason="it is 190 W"),
    )
    text = status_text(gates=gates)
    assert "gate cap failed: it is 190 W" in text
    assert "cooling" not in text


def test_an_engine_without_a_process_holds_nothing() -> None:
    status = views.status()
    (memory,) = status.memory
    shown = dataclasses.replace(status, memory=(dataclasses.replace(memory, held=None),))
    assert "seen to take" in drawn(status_panel(status))
    assert "seen to take" not in drawn(status_panel(shown))


@pytest.mark.parametrize(
    ("act", "subject", "sentence", "expected"),
    [
        ("keep", "m", "keep m@2: it pays", "keep m@2: it pays"),
        ("switch", "p", "m@2 is better for p", "switch p: m@2 is better for p"),
    ],
)
def test_a_sentence_that_names_act_and_subject_is_not_headed_by_them_again(
    act: str, subject: str, sentence: str, expected: str
) -> None:
    assert render.headed(act, subject, sentence) == expected
    event = {"decision": {"id": 7, "act": act, "subject": subject, "reason": sentence}}
    line = lists.event_line("decision.made", {"at": "", "event": event})  # type: ignore[dict-item]
    assert line.endswith(f"7: {expected}")


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("off", "changes nothing by itself ([tuning] mode is off)"),
        ("observe", "mode is observe, it only says what it would do"),
        ("idle", "while nobody asks, changes what traffic proves to be worth it"),
    ],
)
def test_what_comes_next_is_said_without_any_traffic(mode: str, says: str) -> None:
    quiet = dataclasses.replace(views.status(), live=(), engines=(), mode=mode, spent=None)
    shown = " ".join(drawn(status_panel(quiet)).split())
    assert says in shown
    assert "cost" not in shown


def test_where_the_sentence_has_another_row_cost_than_the_fit_both_are_named() -> None:
    view = views.explanation()
    assert "another one" not in drawn(explaining.explanation(view))
    reason = "depth 2 pays: yes: a verification row costs 0.41 of a step " + BY_MEANS
    probe = dataclasses.replace(view, decision=dataclasses.replace(view.decision, reason=reason))
    shown = " ".join(drawn(explaining.explanation(probe)).split())
    assert "of a step, fitted to" in shown
    assert f"the sentence's row cost is another one, {BY_MEANS} alone" in shown


def test_a_choice_from_what_was_stored_cost_nothing() -> None:
    stored = dataclasses.replace(
        views.status(), spent=dataclasses.replace(views.spent(), starts=0, seconds=0.0)
    )
    shown = " ".join(drawn(status_panel(stored)).split())
    assert "decision 16: nothing, it compares what was measured before" in shown
