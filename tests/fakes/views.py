"""Realistic views: note 002's table, study 000's quality, a decision and its cells."""

from __future__ import annotations

import dataclasses

from mtpd.control.compared import compare
from mtpd.explanation_views import (
    AskView,
    CellView,
    CostView,
    DepthSpeedView,
    ExplanationView,
    ModelChainView,
    OutView,
    ReplayView,
    StartView,
)
from mtpd.live_views import (
    LiveArmView,
    LiveClassView,
    LiveNextView,
    LiveProfileView,
)
from mtpd.memory_views import (
    AdviceView,
    DepthMemoryView,
    JointView,
    MemoryPartsView,
    MemoryView,
    NeedView,
    OptionView,
)
from mtpd.quality_views import (
    BaselineView,
    BenchRowView,
    PerplexityView,
    PplComparisonView,
    RecipeDepthView,
    RecipeView,
)
from mtpd.views import (
    AcceptanceView,
    ArmMemoryView,
    ArmView,
    ChoiceView,
    ConfigValueView,
    DecisionView,
    DepthRowView,
    EngineView,
    EvidenceView,
    GateView,
    IntervalView,
    Json,
    MeasurementView,
    ModelView,
    QualityView,
    QuarantineView,
    QueueView,
    ResidencyView,
    SpentView,
    StatusView,
)
from tests.fakes.perplexities import BASE_B2, CHUNKS, UNCENSORED_B2, running

QWEN = "qwen3.6-27b-b2"
TINY = "tiny-unchained"
MIB = 2**20

# Note 002, "The depth sweep": the table's cells. Depth 2 has study 000's acceptances (row 3.6
# B2), the rest is made up to fall with the position.
NOTE_002 = {
    2: ((55.4, 47.2, 54.7, 47.4), 51.2, "resident", (0.961, 0.885)),
    3: ((30.1, 28.9, 35.1, 29.9), 31.0, "evicted", (0.90, 0.78, 0.61)),
    4: ((25.8, 20.7, 26.3, 18.3), 22.8, "evicted", (0.88, 0.74, 0.60, 0.47)),
    5: ((18.6, 15.0, 22.3, 13.3), 17.3, "evicted", (0.86, 0.71, 0.58, 0.45, 0.33)),
}
WORKLOADS = ("short", "prose", "code", "long-reasoning")


def arm(profile: str = QWEN, depth: int = 2) -> ArmView:
    return ArmView(profile=profile, drafter="mtp" if depth else "none", depth=depth, p_min=0.0)


def interval(mid: float, spread: float = 0.02) -> IntervalView:
    return IntervalView(low=mid - spread, mid=mid, high=mid + spread, level=0.95)


def acceptance(*alphas: float, offered: int = 1000) -> tuple[AcceptanceView, ...]:
    found = []
    for position, alpha in enumerate(alphas, start=1):
        accepted = round(offered * alpha)
        found.append(
            AcceptanceView(
                position=position, alpha=interval(alpha), accepted=accepted, offered=offered
            )
        )
        offered = accepted
    return tuple(found)


def depth_row(depth: int) -> DepthRowView:
    speeds, mean, residency, alphas = NOTE_002[depth]
    reached, expected = 1.0, 1.0
    for alpha in alphas:
        reached *= alpha
        expected += reached
    return DepthRowView(
        arm=arm(depth=depth),
        workloads=dict(zip(WORKLOADS, speeds, strict=True)),
        decode_tps=mean,
        tps_interval=interval(mean, 0.8),
        tokens_per_step=expected,
        acceptance=acceptance(*alphas),
        residency=residency,
        same_text=True,
        repetitions=12,
        excluded=0,
        outliers=0,
        note="" if residency == "resident" else "layer 0 runs on the CPU",
    )


def depth_rows() -> tuple[DepthRowView, ...]:
    return tuple(depth_row(depth) for depth in NOTE_002)


def residency(state: str = "resident") -> ResidencyView:
    return ResidencyView(
        state=state,
        layers=None,
        spilled_bytes=None,
        reason="every weight buffer is on the device and the recurrent path is fused",
        evidence=(
            EvidenceView(
                line="load_tensors:        ROCm0 model buffer size = 14336.11 MiB",
                says="the weights are on the device",
            ),
            EvidenceView(
                line="sched_reserve: fused Gated Delta Net enabled",
                says="no layer of the trunk left the device",
            ),
        ),
    )


def engine(state: str = "ready") -> EngineView:
    return EngineView(
        id="e-0001",
        device="0000:03:00.0",
        profile=QWEN,
        state=state,
        arm=arm(),
        residency=residency(),
        pid=4243,
        endpoint="unix:/run/mtpd/e-0001.sock",
        since="2026-11-29T22:44:27.123Z",
        starts=3,
        failure=None,
        log_tail=("srv  llama_server: server is listening",),
    )


def choice() -> ChoiceView:
    return ChoiceView(
        subject="default",
        arm=arm(),
        reason="the only depth that is resident, at 51.2 tok/s.",
        decision_id=17,
        measured=True,
    )


def decision(number: int = 17) -> DecisionView:
    return DecisionView(
        id=number,
        at="2026-11-29T22:40:01.500Z",
        act="choose",
        subject="default",
        arm=arm(),
        previous=arm(depth=3),
        predicted=interval(51.2, 0.8),
        reason="Depth 2 gives 51.2 tok/s (50.4 to 52.0) and is resident; depth 3 evicts a layer.",
        evidence=("depth 3: 31.0 tok/s, evicted", "position 2 earns more than a row costs"),
        measurement_ids=(1, 2),
        operation_id="op-0007",
        outcome="serving since 22:40:09",
    )


def replay(state: str = "same", sentence: str = "") -> ReplayView:
    said = "from 2 recorded repetitions: the same decision"
    return ReplayView(state=state, sentence=sentence or said)


def model_chain() -> ModelChainView:
    """Two starts of note 002's model: depth 2 is resident, depth 3 is not."""
    return ModelChainView(
        profile=QWEN,
        asks=(
            AskView(
                number=1,
                arm=arm(depth=3),
                reason="depth 3 is where the operator wanted to start",
                repetitions=12,
                short_steps=24,
            ),
            AskView(
                number=2,
                arm=arm(),
                reason="depth 2 is the next one that fits",
                repetitions=12,
                short_steps=24,
            ),
        ),
        stop="every depth that fits was measured",
        starts=(
            StartView(
                start_id="3f0c1d22aa",
                arm=arm(depth=3),
                residency="evicted",
                reason="layer 0 runs on the CPU",
                evidence=(EvidenceView(line="layer 0 CPU", says="layer 0 is on the CPU"),),
                failure=None,
                repetitions=12,
                short_steps=0,
            ),
            StartView(
                start_id="77e0b1c4d9",
                arm=arm(),
                residency="resident",
                reason=residency().reason,
                evidence=residency().evidence,
                failure=None,
                repetitions=12,
                short_steps=72,
            ),
        ),
        cells=tuple(
            CellView(
                arm=arm(),
                workload="short",
                prompt=prompt,
                repetitions=3,
                median_tps=55.4 - prompt,
                outliers=prompt % 2,
                digest=None if prompt == 2 else f"ab{prompt}2" * 16,
            )
            for prompt in range(3)
        ),
        cost=CostView(
            row_cost=interval(0.41, 0.03),
            source="72 single steps within 1 start",
            context_cost=interval(0.008, 0.001),
        ),
        speeds=tuple(
            DepthSpeedView(
                depth=depth,
                tokens_per_step=tokens,
                step_ms=interval(30.9 * (1 + 0.41 * depth), 0.5),
                cost=1 + 0.41 * depth,
                tps=interval(1000 * tokens / (30.9 * (1 + 0.41 * depth)), 0.8),
                forecast_tps=None if depth != 2 else interval(50.8, 3.0),
                measured_tps=51.2 if depth == 2 else None,
                misfit=0.0 if depth != 2 else 0.01,
                memory_bytes=(15000 + 150 * depth) * MIB,
            )
            for depth, tokens in enumerate((1.0, 1.96, 2.81))
        ),
        out=(
            OutView(
                arm=arm(depth=1),
                verdict="does not pay",
                reason="is expected at 45.0 tok/s where qwen3.6-27b-b2@2 is expected at 51.2,"
                " does not pay",
            ),
            OutView(
                arm=arm(depth=3),
                verdict="does not fit",
                reason="does not fit (1 layer on the CPU)",
            ),
        ),
        note="",
    )


def explanation() -> ExplanationView:
    return ExplanationView(
        decision=decision(),
        models=(model_chain(),),
        rows=depth_rows(),
        measurements=(measurement(1), measurement(2)),
        rule="the highest mean wins",
        replay=replay(),
        chain=(
            "Depth 3, 4 and 5 evict a layer of the trunk to the CPU: not eligible.",
            "Depth 2 is resident and gives 51.2 tok/s.",
        ),
    )


def measurement(number: int = 1) -> MeasurementView:
    return MeasurementView(
        id=number,
        at="2026-11-29T22:31:07.000Z",
        operation_id="op-0007",
        start_id="e-0001",
        fingerprint="9f" * 32,
        arm=arm(),
        workload="short",
        prompt=0,
        repetition=number - 1,
        tokens=96,
        decode_s=1.7148,
        decode_tps=55.4,
        steps=36,
        drafted=72,
        accepted=60,
        accepted_per_position=(34, 26),
        acceptance_source="metrics",
        digest="ab12cd" + "0" * 58,
        residency="resident",
        excluded=None,
        power_mean_w=148.0,
        joules_per_token=2.64,
        net_joules_per_token=2.27,
    )


def depth_memory(depth: int) -> DepthMemoryView:
    """The 27B hybrid with one slot on a 16 GiB card: a row of 149.625 MiB per depth."""
    total = (14250 + 150 * depth + (132 if depth else 0)) * MIB
    left = 15100 * MIB - total
    return DepthMemoryView(
        depth=depth,
        predicted=MemoryPartsView(
            weights_bytes=13755 * MIB,
            kv_bytes=136 * MIB,
            recurrent_bytes=150 * (1 + depth) * MIB,
            draft_bytes=132 * MIB if depth else 0,
            compute_bytes=144 * MIB,
            overhead_bytes=54 * MIB,
            total_bytes=total,
            low_bytes=total - MIB,
            high_bytes=total + MIB,
        ),
        verdict="fits" if left >= 0 else "evicts",
        reason=f"{abs(left) // MIB} MiB {'left' if left >= 0 else 'lacking'}",
        left_bytes=left,
        engine_fit="evicts",
    )


def memory() -> MemoryView:
    return MemoryView(
        free_bytes=15356 * MIB,
        headroom_bytes=256 * MIB,
        margin_bytes=256 * MIB,
        source="measured on 0000:03:00.0 by sysfs",
        forecast=False,
        calibration="calibrated by a start",
        depths=tuple(depth_memory(depth) for depth in range(6)),
        advice=(
            AdviceView(
                depth=5,
                reason="depth 5 needs 15132 MiB, 32 MiB too many; enough is a context of 8192",
                options=(
                    OptionView(
                        lever="context",
                        setting="a context of 8192",
                        gained_bytes=140 * MIB,
                        enough=True,
                        tps_ratio=1.0,
                        cost="A request can hold 8192 tokens instead of 16384.",
                    ),
                ),
                together=("a context of 8192",),
            ),
        ),
        joint=(JointView(context=16384, slots=1, depth=4, left_bytes=118 * MIB),),
        best="depth 2 is the fastest that stays on the device",
    )


def no_memory() -> MemoryView:
    none = DepthMemoryView(
        depth=0,
        predicted=None,
        verdict="not_applicable",
        reason="there is no device",
        left_bytes=None,
        engine_fit="not_applicable",
    )
    return MemoryView(
        free_bytes=None,
        headroom_bytes=None,
        margin_bytes=None,
        source="there is no device",
        forecast=False,
        calibration=None,
        depths=(none,),
        advice=(),
        joint=(),
        best=None,
    )


def perplexity(name: str = QWEN, value: float = BASE_B2, number: int = 1) -> PerplexityView:
    return PerplexityView(
        id=number,
        at="2026-11-29T21:30:00.000Z",
        operation_id="op-7",
        model=name,
        file=f"/srv/models/{name}.gguf",
        sha256="5a" * 32,
        perplexity=value,
        stderr=0.15,
        corpus="wiki.test.raw",
        corpus_sha256="c0" * 32,
        chunks=CHUNKS,
        context=512,
        flags=("--cache-type-k", "q8_0", "--cache-type-v", "q8_0"),
        tool_digest="7e" * 32,
        running=running(value, own=0.01 if value > BASE_B2 else 0.0),
        note="",
    )


def comparison() -> PplComparisonView:
    found = compare(perplexity(), perplexity("uncensored-b2", UNCENSORED_B2, 2))
    assert isinstance(found, PplComparisonView)
    return found


def baseline() -> BaselineView:
    def test(name: str, prompt: int, generated: int, tps: float) -> BenchRowView:
        return BenchRowView(
            name=name,
            prompt_tokens=prompt,
            gen_tokens=generated,
            depth=0,
            tps=tps,
            tps_sd=0.12,
            samples=(tps,) * 5,
            build="8c60b8a2b (11434)",
            backends="ROCm",
        )

    return BaselineView(
        id=1,
        at="2026-11-29T21:40:00.000Z",
        operation_id="op-8",
        model=QWEN,
        file=f"/srv/models/{QWEN}.gguf",
        flags=("--cache-type-k", "q8_0", "--cache-type-v", "q8_0"),
        tool_digest="7e" * 32,
        rows=(test("pp512", 512, 0, 410.5), test("tg64", 0, 64, 32.4)),
    )


def recipe() -> RecipeView:
    """Study 000: 3.6 in Q4_0 has 14.95 GiB and its B2 file 14.3."""
    then = depth_memory(3)
    assert then.predicted is not None
    larger = dataclasses.replace(then.predicted, total_bytes=then.predicted.total_bytes + 312 * MIB)
    now = dataclasses.replace(
        then, predicted=larger, verdict="evicts", reason="12 MiB lacking", left_bytes=-12 * MIB
    )
    return RecipeView(
        recipe="b2",
        model=QWEN,
        file="/srv/models/Qwen3.6-27B-Q4_0.gguf",
        output="/srv/models/Qwen3.6-27B-Q4_0-B2.gguf",
        tensor="output.weight",
        before_type="Q6_K",
        after_type="Q4_0",
        gained_bytes=312 * MIB,
        size_bytes=15354000000,
        free_bytes=200 * 1024 * MIB,
        depths=(RecipeDepthView(before=now, after=then),),
        command="llama-quantize --allow-requantize --output-tensor-type q4_0 A B Q4_0",
        forbids=("acceptance and speed of the original: other logits make another text",),
        reason="output.weight in Q4_0 is 312 MiB smaller: depth 3 then stays on the device",
    )


def need() -> NeedView:
    return NeedView(
        count_bytes=14_388 * MIB, source="measured", reason="what a start of it was seen to take"
    )


def model() -> ModelView:
    return ModelView(
        id=QWEN,
        aliases=("default",),
        tags=(),
        model="/srv/models/Qwen3.6-27B-B2.gguf",
        size_bytes=15354000000,
        sha256="5a" * 32,
        context=16384,
        slots=1,
        kv_type="q8_0",
        drafter="mtp",
        max_depth=5,
        offload="refuse",
        quality=QualityView(perplexity=5.6553, stderr=0.15, corpus="wikitext-2", chunks=32),
        choice=choice(),
        depths=depth_rows(),
        state="ready",
        memory=memory(),
        perplexity=perplexity(value=5.6553),
        baseline=baseline(),
        need=need(),
    )


def unmeasured_model() -> ModelView:
    return ModelView(
        id=TINY,
        aliases=(),
        tags=("tiny",),
        model="tiny-unchained.gguf",
        size_bytes=4144608,
        sha256=None,
        context=2048,
        slots=1,
        kv_type="f16",
        drafter="mtp",
        max_depth=3,
        offload="refuse",
        quality=None,
        choice=None,
        depths=(),
        state="stopped",
        memory=no_memory(),
    )


def status() -> StatusView:
    return StatusView(
        version="0.1.0",
        pid=4242,
        started_at="2026-11-29T20:41:12.000Z",
        uptime_s=7395.0,
        listen="127.0.0.1:8080",
        control_socket="/run/mtpd/control.sock",
        mode="idle",
        engine_binary="llama-server at /usr/bin/llama-server",
        hardware="gfx906-16g-150w",
        engines=(engine(),),
        memory=(ArmMemoryView(arm=arm(), memory=memory().depths[2], held=need()),),
        queue=QueueView(waiting=0, limit=64, timeout_s=120.0, in_flight=1),
        gates=(
            GateView(name="edge", state="passed", reason="41 °C, at most 44 °C"),
            GateView(name="cap", state="unknown", reason="power1_cap cannot be read"),
        ),
        choices=(choice(),),
        last_decision=decision(),
        operation=None,
        live=(live(),),
        spent=spent(),
    )


def spent() -> SpentView:
    return SpentView(
        decision_id=16, subject="default", at="2026-11-29T22:40:12.000Z", starts=3, seconds=252.4
    )


def live() -> LiveProfileView:
    def seen(depth: int, tps: float | None, *alphas: float) -> LiveArmView:
        return LiveArmView(
            arm=arm(depth=depth),
            requests=180.5,
            tokens_per_step=2.55 if alphas else 1.0,
            decode_tps=tps,
            alphas=tuple(interval(alpha) for alpha in alphas),
            unidentified=None,
        )

    return LiveProfileView(
        profile=QWEN,
        requests=412,
        excluded={"cancelled": 7, "throttled": 2},
        tokens_per_s=3.4,
        classes=(
            LiveClassView(name="short/prose/sampled/reasoning", share=0.31, arms=(seen(0, 32.1),)),
            LiveClassView(
                name="long/code/greedy", share=0.69, arms=(seen(0, 30.0), seen(2, 44.9, 0.93, 0.71))
            ),
        ),
        calibration_id=17,
        stale=("power_cap_w was 225.0 and is 150.0",),
        moved=("acceptance has fallen in class long/code/greedy",),
        next=LiveNextView(
            act="measure",
            arm=arm(),
            says=f"keep {QWEN}@2: would measure but the card has been idle for 40 s only: what is"
            " stored no longer holds: power_cap_w was 225.0 and is 150.0",
            waits_for="the card has been idle for 40 s only",
        ),
    )


def config_values() -> tuple[ConfigValueView, ...]:
    return (
        ConfigValueView(
            key="server.listen", value="127.0.0.1:8080", origin="/etc/mtpd/mtpd.toml:2"
        ),
        ConfigValueView(key="pools.default.members", value=[QWEN], origin="/etc/mtpd/mtpd.toml:9"),
        ConfigValueView(key="tuning.min_idle_s", value=120, origin="default"),
    )


def reloaded() -> dict[str, Json]:
    """The result of a reload that found two engines which ran otherwise."""
    reason = "the configuration was read again: other engine settings: qwen"
    file = "/etc/mtpd/mtpd.toml"
    return {
        "reason": reason,
        "changes": {
            "changed": ["qwen"],
            "values": [
                {"key": "models.qwen.context", "old": 4096, "new": 8192, "origin": f"{file}:9"},
                {"key": "models.qwen.threads", "old": None, "new": 4, "origin": f"{file}:10"},
            ],
        },
        "warnings": [f"{file}:12: models.new.model: /srv/new.gguf does not exist"],
        "decision": 19,
        "engines": [
            {"profile": "qwen", "outcome": "restarted", "why": reason},
            {"profile": "old", "outcome": "waits", "why": "1 request(s) still ran after 120 s"},
        ],
    }


def quarantined() -> QuarantineView:
    return QuarantineView(
        id="9f86d081884c",
        profile=QWEN,
        path="/v1/chat/completions",
        size_bytes=312,
        reason=f"the engine of {QWEN} died twice while it worked on this request (crash: SIGSEGV)",
        deaths=("crash: SIGSEGV", "crash: SIGSEGV"),
        left_s=1800.0,
    )
