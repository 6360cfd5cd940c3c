"""The figures of the two studies as stored repetitions, and the report that they make.

Study 000, "The measurement matrix": size, perplexity over 32 chunks with its error of 0.15,
serving tok/s at depth 2, and both acceptances, as counts over 20 000 steps. Note 002, "The depth
sweep": tok/s per workload. What the studies do not print (context, seeds, texts) is made up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from mtpd.control import reporting
from mtpd.control.chain import ModelStory, model_chain
from mtpd.control.reporting import ModelRecord
from mtpd.control.rows import depth_rows
from mtpd.report_views import ReportView
from mtpd.views import ArmView, ChoiceView, QualityView
from tests.fakes import views
from tuner.compare import PerplexityRun, Quality
from tuner.plan import History
from tuner.summary import summarise
from tuner.types import Arm, Drafter, Evicted, Observation, Residency, Resident, Unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GIB: Final = 2**30
STEPS: Final = 20_000
NOT_PROVEN: Final = Unknown("the study measured it above the residency threshold")


class Row(NamedTuple):
    """One row: size in GiB, perplexity, serving in tok/s, acceptances, residency, tags."""

    gib: float
    perplexity: float
    tps: float
    alphas: tuple[float, float] | None
    residency: Residency
    tags: tuple[str, ...] = ()


UNCENSORED: Final = ("uncensored",)
MATRIX: Final[Mapping[str, Row]] = {
    "qwen3.8-27b-uncensored-q4_k_m": Row(
        15.6, 5.5997, 27.0, None, Evicted(layers=None), UNCENSORED
    ),
    "qwen3.6-27b-b2": Row(14.3, 5.6553, 50.3, (0.961, 0.885), Resident()),
    "qwen3.8-27b-q4_0": Row(14.95, 5.6942, 38.0, (0.881, 0.761), NOT_PROVEN),
    "qwen3.8-27b-b2": Row(14.3, 5.7722, 46.0, (0.932, 0.735), Resident()),
    "qwen3.8-27b-uncensored-i1-q4_0": Row(
        14.6, 5.8041, 42.0, (0.886, 0.736), NOT_PROVEN, UNCENSORED
    ),
    "qwen3.8-27b-uncensored-b2": Row(14.3, 5.8404, 45.8, (0.907, 0.725), Resident(), UNCENSORED),
}


def arm(name: str, depth: int = 2) -> Arm:
    return Arm(profile=name, drafter=Drafter.MTP if depth else Drafter.NONE, depth=depth)


def repetitions(
    of: Arm,
    tps: float,
    alphas: Sequence[float] | None,
    residency: Residency,
    *,
    workload: str = "code",
    text: str | None = None,
    count: int = 3,
    power_w: float | None = None,
) -> list[Observation]:
    """Three repetitions of a prompt that give these numbers."""
    kept: list[int] = []
    for alpha in alphas or ():
        kept.append(round((kept[-1] if kept else STEPS) * alpha))
    tokens = 1 + STEPS + sum(kept)
    plain = Observation(
        arm=of,
        workload=workload,
        prompt=0,
        repetition=0,
        start_id=f"start-of-{of}",
        fingerprint=f"fingerprint-of-{of.profile}",
        tokens=tokens,
        decode_s=(tokens - 1) / tps,
        steps=None if alphas is None else STEPS if of.depth else 0,
        drafted=None if alphas is None else STEPS * of.depth,
        accepted=None if alphas is None else sum(kept),
        accepted_per_position=None if alphas is None else tuple(kept),
        digest=text or f"{of.profile}-{workload}",
        residency=residency,
        joules_per_token=None if power_w is None else power_w * ((tokens - 1) / tps) / tokens,
    )
    return [replace(plain, repetition=number) for number in range(count)]


def record(
    name: str,
    observations: Sequence[Observation],
    *,
    served: int = 2,
    first_id: int = 1,
    size_bytes: int | None = None,
    quality: Quality | None = None,
    tags: tuple[str, ...] = (),
    decision_id: int | None = None,
) -> ModelRecord:
    """All that is known of a model of which these repetitions are stored."""
    summaries = summarise(observations)
    ids: dict[Arm, tuple[int, ...]] = {}
    for number, one in enumerate(observations, start=first_id):
        ids[one.arm] = (*ids.get(one.arm, ()), number)
    choice = ChoiceView(
        subject=name,
        arm=ArmView.of(arm(name, served)),
        reason=f"{arm(name, served)} is the fastest of those that fit",
        decision_id=decision_id,
        measured=bool(observations),
    )
    shown = None
    if quality is not None:
        shown = QualityView(
            perplexity=quality.value,
            stderr=quality.stderr,
            corpus=quality.run.corpus,
            chunks=quality.run.chunks,
        )
    view = replace(
        views.model(),
        id=name,
        aliases=(),
        tags=tags,
        size_bytes=size_bytes,
        quality=shown,
        perplexity=None,
        choice=choice,
        depths=depth_rows(summaries),
        max_depth=3,
    )
    story = ModelStory(
        profile=name,
        history=History(observations=tuple(observations)),
        design=None,
        memory_bytes={},
        verdicts={},
    )
    return ModelRecord(
        view=view,
        served=arm(name, served),
        summaries=summaries,
        ids=ids,
        quality=quality,
        context_tokens=8192,
        memory_bytes=size_bytes,
        chain=model_chain(story),
        decision_id=decision_id,
    )


def perplexity(value: float, chunks: int = 32) -> Quality:
    return Quality(value=value, stderr=0.15, run=PerplexityRun(corpus="wikitext-2", chunks=chunks))


def records() -> tuple[ModelRecord, ...]:
    """The six models of study 000, in the order of its matrix."""
    return tuple(
        record(
            name,
            repetitions(arm(name), row.tps, row.alphas, row.residency),
            first_id=1 + 3 * place,
            size_bytes=round(row.gib * GIB),
            quality=perplexity(row.perplexity),
            tags=row.tags,
        )
        for place, (name, row) in enumerate(MATRIX.items())
    )


def sweep(name: str = views.QWEN) -> ModelRecord:
    """The model of note 002 at depths 2 to 5."""
    return record(
        name,
        [
            one
            for depth, (speeds, _, residency, alphas) in views.NOTE_002.items()
            for workload, tps in zip(views.WORKLOADS, speeds, strict=True)
            for one in repetitions(
                arm(name, depth),
                tps,
                alphas,
                Resident() if residency == "resident" else Evicted(layers=1),
                workload=workload,
            )
        ],
    )


def report(*which: ModelRecord, subject: str | None = None) -> ReportView:
    """The report of these models, or of study 000's."""
    found = which or records()
    in_force = [one.view.choice for one in found if one.view.choice is not None]
    pool = ChoiceView(
        subject="default",
        arm=ArmView.of(arm("qwen3.6-27b-b2")),
        reason="R2 balanced: qwen3.6-27b-b2@2 is the fastest",
        decision_id=17,
        measured=True,
    )
    return ReportView(
        subject=subject,
        at="2026-11-29T22:40:01.500Z",
        version="0.1.0",
        hardware="gfx906-16g-150w",
        engine="llama-server at /usr/bin/llama-server",
        matrix=reporting.matrix(found),
        pairs=reporting.pairs(found),
        models=tuple(map(reporting.model_report, found)),
        recommendations=reporting.recommendations(found) if len(found) > 1 else (),
        choices=(pool, *in_force),
        left_out=(),
    )
