"""Drafters compared with each other on the real engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mtpd.engine import prom
from mtpd.engine.prom import SpecCounters
from tests.contract.harness import EMBEDDED, serving
from tests.contract.requests import completion
from tests.fakes.house import daemon_at, home, run_operation, write_config

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real_engine, pytest.mark.slow]

CONFIG = """
[server]
listen = "127.0.0.1:0"
[engine]
binary = "embedded"
threads = 1
[models.tiny]
model = "bundled:tiny-chained.gguf"
context = 2048
[[models.tiny.drafters]]
kind = "mtp"
max_depth = 1
[[models.tiny.drafters]]
kind = "draft-model"
model = "bundled:tiny-unchained.gguf"
max_depth = 1
[[models.tiny.drafters]]
kind = "ngram"
max_depth = 1
[[models.tiny.drafters]]
kind = "eagle3"
model = "bundled:tiny-unchained.gguf"
max_depth = 1
"""


@pytest.mark.parametrize(
    "flags",
    [
        (
            *("--spec-type", "ngram-simple", "--spec-ngram-simple-size-m", "4"),
            *("--spec-ngram-simple-size-n", "4"),
        ),
        ("--spec-type", "ngram-map-k", "--spec-ngram-map-k-size-m", "4"),
        ("--spec-type", "ngram-map-k4v", "--spec-ngram-map-k4v-size-m", "4"),
        (
            *("--spec-type", "ngram-mod", "--spec-ngram-mod-n-max", "4"),
            *("--spec-ngram-mod-n-min", "4"),
        ),
    ],
    ids=lambda flags: flags[1],
)
async def test_every_way_to_look_for_ngrams_drafts_what_repeats(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    text = "def add(a, b):\n    return a + b\n\n\n" * 24
    async with serving(EMBEDDED, *flags, home=tmp_path) as (_, client):
        body = completion(96, prompt=text, ignore_eos=True)
        await client.complete("/completion", body, timeout_s=40)
        counted = prom.spec_counters(await client.metrics_text())
    assert isinstance(counted, SpecCounters)
    assert counted.drafted
    assert counted.drafted <= 4 * counted.drafts


async def test_a_tuning_compares_the_drafters_of_a_model_and_names_what_the_engine_lacks() -> None:
    async with home() as place:
        place.config.write_text(CONFIG)
        async with daemon_at(place) as (running, client):
            tuning = await running.control.tune(
                subject="tiny",
                method="sweep",
                depths=None,
                workloads=("prose",),
                prompts=1,
                repetitions=1,
                max_tokens=24,
                apply=True,
                idempotency_key=None,
            )
            ended = await run_operation(running, tuning)
            assert ended.state == "done", ended.error
            (pool,) = await running.control.decisions(subject="tiny", limit=1)
            shown = await running.control.model("tiny")
            assert shown is not None
            assert pool.arm is not None
            assert shown.id == pool.arm.profile
            assert shown.variants == tuple(
                f"tiny+{one}" for one in ("mtp", "draft-model", "ngram", "eagle3")
            )
            (lacking,) = await running.control.decisions(subject="tiny+eagle3", limit=1)
            assert "has no speculation of type draft-eagle3" in lacking.reason
            compared = {line.split("@")[0] for line in pool.evidence if "tok/s" in line}
            drafters = ("mtp", "draft-model", "ngram", "eagle3")
            assert compared == {f"tiny+{one}" for one in drafters}
            for name in ("mtp", "draft-model"):
                found = await running.control.measurements(
                    model=f"tiny+{name}",
                    depth=1,
                    workload=None,
                    operation_id=None,
                    ids=None,
                    limit=1,
                )
                assert found[0].drafted, f"{name} drafts"
            async with client.post("/completion", json={"model": "tiny", "prompt": "x"}) as reply:
                assert pool.arm is not None
                assert reply.headers["X-Mtpd-Profile"] == pool.arm.profile
                assert reply.headers["X-Mtpd-Why"] == pool.reason
            async with client.get("/v1/models") as reply:
                assert [one["id"] for one in (await reply.json())["data"]] == ["tiny"]


async def test_an_image_is_refused_by_an_engine_that_drafts_and_ends_nothing() -> None:
    """llama-server was seen to abort on an image while it drafts (ggml-org/llama.cpp 23398).

    mtpd passes no projector, so the engine has no way to take one.
    """
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    asked = {"model": "alpha", "max_tokens": 8}
    async with home() as place:
        write_config(place, binary="embedded")
        text = place.config.read_text()
        place.config.write_text(text.replace("max_depth = 3", "max_depth = 3\ndepth = 2", 1))
        async with daemon_at(place) as (running, client):
            for content, served in (([image], False), ("Say it.", True)):
                body = asked | {"messages": [{"role": "user", "content": content}]}
                async with client.post("/v1/chat/completions", json=body) as reply:
                    assert (reply.status == 200) is served, await reply.text()
                    assert reply.headers["X-Mtpd-Depth"] == "2"
            (engine,) = (await running.control.status()).engines
            assert (engine.starts, engine.failure) == (1, None)
