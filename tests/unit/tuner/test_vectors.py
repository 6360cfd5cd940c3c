"""Every vector of tests/corpus/tuner_vectors.json, to the digits given."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tuner import acceptance, compare, cost, drafts, drift, memory, throughput, worth
from tuner.acceptance import PositionCounts
from tuner.compare import PerplexityRun, Quality, TextRun
from tuner.cost import CostFit, StepPoint
from tuner.select import Candidate, Objective, choose_model
from tuner.types import Arm, Drafter, Evicted, Residency, Resident, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

Input = dict[str, Any]

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "corpus" / "tuner_vectors.json").read_text(encoding="utf-8")
)["vectors"]


def counts(i: Input) -> PositionCounts:
    return PositionCounts(steps=i["steps"], accepted=tuple(i["accepted_per_pos"]))


def beta_posterior(i: Input) -> object:
    first, second = i["prior"]
    return [
        {
            "alpha": post.alpha,
            "beta": post.beta,
            "mean": post.interval.mid,
            "lo": post.interval.low,
            "hi": post.interval.high,
        }
        for post in acceptance.beta_posterior(counts(i), prior=(first, second), phi=i["phi"])
    ]


def aggregate_identify(i: Input) -> object:
    found = acceptance.aggregate_identify(i["k"], i["steps"], i["accepted"])
    return {
        "r": found.rate,
        "E": found.expected,
        "s1_lo": found.first_low,
        "s1_hi": found.first_high,
        "geo": found.geometric,
    }


def fit_cost(i: Input) -> object:
    fit = cost.fit_cost([StepPoint(depth=k, step_s=t) for k, t in i["points"]])
    assert isinstance(fit, CostFit)
    return [fit.t0_s, fit.c]


def switch_decision(i: Input) -> object:
    # The vectors without a floor were made with the 3 % that TUNER's section 3.6 tries first.
    verdict = worth.switch_decision(**{"min_gain": 0.03, **i})
    return {
        "gain_s": verdict.gain_s,
        "p": verdict.p,
        "x_req": verdict.x_req,
        "switch": verdict.switch,
    }


def cusum(i: Input) -> object:
    start = drift.Cusum(kappa=i["kappa"], h=i["h"])
    return [state.down for state in drift.cusum(i["z"], start)]


def cusum_alarm_index(i: Input) -> object:
    return drift.alarm_index(i["z"], drift.Cusum(kappa=i["kappa"], h=i["h"]))


def request_z(i: Input) -> object:
    return drift.request_z(i["V"], i["A"], mean=i["mu"], variance=i["var"], tau2=i["tau2"])


def ppl_compare(i: Input) -> object:
    found = compare.ppl_compare(i["p1"], i["se1"], i["p2"], i["se2"], rho=i["rho"])
    return {
        "delta_log": found.delta_log,
        "se": found.se,
        "z": found.z,
        "verdict": found.verdict.value,
    }


def paired_t(i: Input) -> object:
    test = compare.paired_t(i["a"], i["b"])
    return {"mean": test.mean, "se": test.se, "t": test.t, "df": test.df, "p": test.p}


def comparable(i: Input) -> object:
    def run(side: Input) -> PerplexityRun | TextRun:
        if "corpus" in side:
            return PerplexityRun(corpus=side["corpus"], chunks=side["chunks"], context=side["ctx"])
        return TextRun(digest=side["sha"], temperature=side["temp"], seed=side["seed"])

    return isinstance(compare.comparable(run(i["a"]), run(i["b"])), compare.Comparable)


RESIDENCY: dict[bool | None, Residency] = {
    True: Resident(),
    False: Evicted(layers=None),
    None: Unknown("the study does not say"),
}


def select_model(i: Input) -> object:
    wikitext = PerplexityRun(corpus="wikitext-2", chunks=32)
    rows = [
        Candidate(
            arm=Arm(profile=row["name"], drafter=Drafter.MTP, depth=2),
            tps=row["tps"],
            residency=RESIDENCY[row["resident"]],
            quality=Quality(value=row["ppl32"], stderr=row["se"], run=wikitext),
            memory_bytes=round(row["size_gib"] * 2**30),
            tags=frozenset(row["tags"]),
        )
        for row in i["matrix"]
    ]
    decision = choose_model(
        rows,
        objective=Objective(i["objective"]),
        require=frozenset(i["require"]),
        accept_offload=i["allow_offload"],
        rho=i["rho"],
    )
    assert decision.arm is not None
    return decision.arm.profile


def log_ratio_e(i: Input) -> object:
    return acceptance.log_ratio_e(counts(i), i["k1"], i["k2"], phi=i["phi"])


HANDLERS: dict[str, Callable[[Input], object]] = {
    "acc_moments": lambda i: acceptance.acc_moments(counts(i)),
    "aggregate_identify": aggregate_identify,
    "beta_posterior": beta_posterior,
    "breakeven_next": lambda i: cost.breakeven_next(i["cond"], i["c"]),
    "chunk_nll": lambda i: compare.chunk_nll(i["running"]),
    "comparable": comparable,
    "cond_from_counts": lambda i: acceptance.cond_from_counts(counts(i)),
    "cusum": cusum,
    "cusum_alarm_index": cusum_alarm_index,
    "draft_n_all_rejected": lambda i: drafts.draft_n_all_rejected(i["n_predict"], i["k"]),
    "e_hat": lambda i: acceptance.e_hat(counts(i), phi=i["phi"]),
    "e_ratio": lambda i: throughput.e_ratio(i["cond"]),
    "eviction_ratio": lambda i: throughput.measured_over_forecast(
        i["measured"], i["resident_forecast"]
    ),
    "expected_tokens": lambda i: acceptance.expected_tokens(i["cond"]),
    "first_draft_len": lambda i: drafts.first_draft_len(i["n_predict"], i["k"]),
    "fit_cost": fit_cost,
    "full_draft_ratio": lambda i: acceptance.full_draft_ratio(i["draft_n"], i["steps"], i["k"]),
    "implied_step_ratio": lambda i: cost.implied_step_ratio(i["raw_tps"], i["cond"], i["tps"]),
    "log_ratio_E": log_ratio_e,
    "marginal_cost_from_gain": lambda i: cost.marginal_cost_from_gain(i["cond"], i["gain"]),
    "mean_len": lambda i: acceptance.mean_len(i["draft_n_accepted"], i["steps"]),
    "median3_mean4": lambda i: compare.mean_of_medians(i["runs"]),
    "microprobe_cost": lambda i: cost.microprobe_cost(i["T0"], i["T1"], i["Tk"], i["k"]),
    "monotone_bound_tps": lambda i: throughput.monotone_bound_tps(
        i["cond"], i["t0"], i["c"], i["j"], slack=i["slack"]
    ),
    "p_beats": lambda i: throughput.p_beats(
        i["l_j"], i["s_j"], i["l_inc"], i["s_inc"], eps=i["eps"]
    ),
    "paired_t": paired_t,
    "phi_hat": lambda i: acceptance.phi_hat([(v, a, q) for v, a, q in i["requests"]]),
    "plain_steps": lambda i: drafts.plain_steps(
        i["predicted_n"], i["draft_n_accepted"], i["verif_steps"]
    ),
    "ppl_compare": ppl_compare,
    "predict_tps": lambda i: throughput.predict_tps(i["cond"], i["t0"], i["c"]),
    "request_z": request_z,
    "rs_mib": lambda i: memory.rs_mib(memory.QWEN35_27B, slots=i["n_slots"], depth=i["n_max"]),
    # Study 000's own arithmetic, which is no throughput ratio (e_ratio is): kept as a record.
    "seed_ceiling_as_printed": lambda i: i["a2"] / i["E2"],
    "select_model": select_model,
    "steps_from_timings": lambda i: acceptance.steps_from_timings(
        i["predicted_n"], i["draft_n_accepted"]
    ),
    "survival": lambda i: acceptance.survival(i["cond"]),
    "sweep_mean_note002": lambda i: compare.mean_of_medians([[tps] for tps in i["row"]]),
    "switch_decision": switch_decision,
    "synth_cond_from_rates": lambda i: acceptance.synth_cond_from_rates(i["rates"]),
    "synth_p": lambda i: acceptance.synth_p(i["L"], i["K"]),
    "true_tokens_per_step": lambda i: acceptance.true_tokens_per_step(
        i["predicted_n"], i["draft_n_accepted"]
    ),
    "upper_bound_tps": lambda i: throughput.upper_bound_tps(i["cond"], i["t0"], i["c"], i["j"]),
}


def agrees(got: object, want: object, tolerance: float) -> bool:
    match want:
        case dict():
            return (
                isinstance(got, dict)
                and got.keys() == want.keys()
                and all(agrees(got[key], want[key], tolerance) for key in want)
            )
        case list():
            return (
                isinstance(got, list | tuple)
                and len(got) == len(want)
                and all(agrees(g, w, tolerance) for g, w in zip(got, want, strict=True))
            )
        case bool() | str() | None:
            return got == want
        case _:
            assert isinstance(want, int | float)
            assert isinstance(got, int | float)
            return math.isclose(got, want, rel_tol=0.0, abs_tol=tolerance)


@pytest.mark.parametrize(
    "vector", VECTORS, ids=[f"{n:03d}-{vector['fn']}" for n, vector in enumerate(VECTORS)]
)
def test_the_vector_holds_to_the_digits_given(vector: dict[str, Any]) -> None:
    got = HANDLERS[vector["fn"]](vector["input"])
    assert agrees(got, vector["expect"], vector.get("tol", 1e-4)), (got, vector)


def test_every_function_of_the_vectors_has_a_handler_and_none_is_idle() -> None:
    assert {vector["fn"] for vector in VECTORS} == set(HANDLERS)


def test_the_corpus_is_the_whole_set_of_vectors() -> None:
    assert len(VECTORS) == 103


def test_a_wrong_number_would_be_noticed() -> None:
    assert not agrees(2.6184, 2.6182, 1e-4)
    assert not agrees([1.0], [1.0, 2.0], 1e-4)
    assert not agrees({"a": 1.0}, {"b": 1.0}, 1e-4)
