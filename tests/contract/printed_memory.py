"""What a real engine prints of its memory, start by start, beside what was predicted for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mtpd.config.data import bundled_model
from mtpd.control.shapes import geometry_of
from mtpd.engine import logs
from mtpd.engine.facts import Buffer
from mtpd.units import MIB
from tests.contract.harness import EMBEDDED, running
from tuner.memory import Geometry, KvType, LoadPlan, Printed, assumed, calibrated, predict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["CONTEXTS", "DEPTHS", "KINDS", "SLOTS", "Sums", "errors", "geometry", "load", "started"]

MODEL: Final = str(bundled_model("tiny-chained.gguf"))
CONTEXTS: Final = (2048, 4096, 8192, 16384, 32768, 65536)
SLOTS: Final = (1, 2, 3, 4)
DEPTHS: Final = (0, 1, 2, 3, 4, 5)
KINDS: Final = (KvType.F16, KvType.Q8_0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """One start, bytes.

    Attributes:
        exact: Weights, KV, recurrent state and the draft's KV.
        compute: Work buffer of the main context.
        draft_compute: That of the draft context; None where there is none.
    """

    exact: int
    compute: int
    draft_compute: int | None

    @property
    def whole(self) -> int:
        """All of it."""
        return self.exact + self.compute + (self.draft_compute or 0)


def geometry() -> Geometry:
    """The shape of the bundled model, from its header."""
    found = geometry_of(MODEL)
    assert isinstance(found, Geometry)
    assert not found.output_bytes
    return found


def load(context: int, slots: int, depth: int, kind: KvType) -> LoadPlan:
    """How one cell of the grid is started."""
    return LoadPlan(
        context=context,
        slots=slots,
        depth=depth,
        kv_type_k=kind,
        kv_type_v=kind,
        draft_kv_type_k=kind,
        draft_kv_type_v=kind,
    )


async def started(
    plan: LoadPlan, *, home: Path, spec: Sequence[str] | None = None, second: bool = False
) -> Sums:
    """Start the embedded engine once, until its memory is allocated.

    Args:
        plan: How.
        home: Where.
        spec: The flags of another drafter than the model's own head.
        second: Whether that has a context of its own.
    """
    socket = home / "engine.sock"
    socket.unlink(missing_ok=True)
    flags = [
        *("--model", MODEL, "--host", str(socket), "--threads", "1", "--no-ui"),
        *("--log-verbosity", "4", "--ctx-size", str(plan.context)),
        *("--parallel", str(plan.slots), "--no-warmup"),
        *("--cache-type-k", plan.kv_type_k, "--cache-type-v", plan.kv_type_v),
    ]
    if spec is not None:
        flags += spec
    elif plan.depth:
        flags += ["--spec-type", "draft-mtp", "--spec-draft-n-max", str(plan.depth)]
        flags += ["--spec-draft-type-k", plan.draft_kv_type_k]
        flags += ["--spec-draft-type-v", plan.draft_kv_type_v]
    async with running(EMBEDDED, *flags, home=home) as engine:
        await engine.until_said("model loaded")
        facts = [fact for line in engine.lines if isinstance(fact := logs.fact(line), Buffer)]
    return _sums(facts, drafts=plan.depth > 0 if spec is None else second)


def _sums(facts: Sequence[Buffer], *, drafts: bool) -> Sums:
    def sizes(*kinds: str) -> list[int]:
        return [round(fact.mib * MIB) for fact in facts if fact.kind in kinds]

    compute = sizes("compute")
    return Sums(
        exact=sum(sizes("model", "KV", "RS")),
        compute=compute[0],
        draft_compute=compute[-1] if drafts else None,  # reserved twice, the last one counts
    )


def errors(plan: LoadPlan, printed: Sums, *, of: LoadPlan, seen: Sums) -> tuple[int, int]:
    """Predicted less printed bytes: the exact terms, and all, once another start was seen.

    The model's output is tied to the embedding of its tokens, which a card holds for that
    reason and the processor holds anyway, so both hold the same weights.

    Args:
        plan: What was started.
        printed: What it printed.
        of: The start that calibrates.
        seen: What that printed.
    """
    shape = geometry()
    first = Printed(compute=seen.compute, draft_compute=seen.draft_compute)
    calibration = calibrated(assumed(shape), shape, of, first)
    predicted = predict(shape, plan, calibration)
    exact = predicted.weights.size + predicted.kv.size
    exact += predicted.recurrent.size + predicted.draft_kv.size
    whole = exact + predicted.compute.size + predicted.draft_compute.size
    return exact - printed.exact, whole - printed.whole
