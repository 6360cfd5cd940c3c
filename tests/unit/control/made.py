"""Configurations, journal rows and observations for the tests of control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtpd.config.model import (
    Config,
    DrafterConfig,
    EngineConfig,
    Message,
    Pool,
    Profile,
    Workload,
    WorkloadPrompt,
)
from mtpd.types import EngineBinary
from mtpd.views import ArmView
from tests.fakes.values import decision_view
from tuner.types import Arm, Drafter, Host, Observation

if TYPE_CHECKING:
    from typing import Any

    from mtpd.views import DecisionView

CHAT = WorkloadPrompt(
    path="/v1/chat/completions", messages=(Message(role="user", content="Say what a list is."),)
)
TEXT = WorkloadPrompt(path="/completion", prompt="def main() -> None:")
BINARY = EngineBinary(
    argv=("/usr/bin/llama-server",),
    kind="external",
    flags=frozenset(
        {
            *("--model", "--host", "--port", "-lv", "--metrics", "--ctx-size", "--parallel"),
            *("--cache-type-k", "--cache-type-v", "--threads", "--fit", "--n-gpu-layers"),
            *("--spec-type", "--spec-draft-n-max", "--spec-draft-p-min", "--alias"),
            *("--spec-draft-model", "--spec-draft-type-k", "--spec-draft-type-v"),
        }
    ),
    spec_types=frozenset({"none", "draft-mtp"}),
    digest="e" * 64,
    label="llama-server at /usr/bin/llama-server",
    unix_socket=True,
)


def workload(name: str, prompts: int = 4) -> Workload:
    asked = tuple((CHAT, TEXT)[number % 2] for number in range(prompts))
    return Workload(name=name, description=name, max_tokens=32, prompts=asked)


def profile(name: str = "tiny", *, max_depth: int = 3, **changes: Any) -> Profile:
    drafter = DrafterConfig(
        kind=Drafter.MTP if max_depth else Drafter.NONE,
        max_depth=max_depth,
        depth=changes.pop("depth", None),
        p_min=changes.pop("p_min", 0.0),
    )
    return Profile(name=name, **{"model": f"/models/{name}.gguf", "drafter": drafter, **changes})


def config(
    *profiles: Profile,
    pools: tuple[Pool, ...] = (),
    workloads: tuple[Workload, ...] | None = None,
    threads: int | None = None,
) -> Config:
    if workloads is None:
        workloads = tuple(workload(name) for name in ("short", "prose", "code", "long-reasoning"))
    return Config(
        engine=EngineConfig(threads=threads),
        profiles={one.name: one for one in profiles},
        pools={one.name: one for one in pools},
        workloads={one.name: one for one in workloads},
    )


def arm(name: str = "tiny", depth: int = 0, p_min: float = 0.0) -> Arm:
    if depth == 0:
        return Arm(profile=name)
    return Arm(profile=name, drafter=Drafter.MTP, depth=depth, p_min=p_min)


def chose(which: Arm, *, subject: str | None = None, **changes: Any) -> DecisionView:
    """A journalled choice of an arm."""
    about = subject or which.profile
    return decision_view(subject=about, arm=ArmView.of(which), **changes)


def observation(which: Arm | None = None, **changes: Any) -> Observation:
    """Of 40 steps at 20 ms: 38 accepted at the first position, 30 at the second, 12 after."""
    one = which or arm(depth=2)
    kept = (38, 30, 12)[: one.depth]
    tokens = 41 + sum(kept)
    plain: dict[str, Any] = {
        "arm": one,
        "workload": "prose",
        "prompt": 0,
        "repetition": 0,
        "start_id": f"start-of-{one}",
        "fingerprint": "f" * 64,
        "tokens": tokens,
        "decode_s": 0.8,
        "steps": 40 if one.depth else 0,
        "drafted": 40 * one.depth,
        "accepted": sum(kept),
        "accepted_per_position": kept,
        "digest": "d" * 64,
        "residency": Host(),
    }
    return Observation(**{**plain, **changes})
