"""What an engine needs, what is free and what others hold, on a card and without one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mtpd.config.data import bundled_model
from mtpd.config.model import BudgetConfig, Opaque
from mtpd.control.account import MemoryAccount
from mtpd.control.shapes import DeviceBudget, MemoryPlanner
from mtpd.gpu.card import Card
from mtpd.gpu.host import HostMemory, HostProvider
from mtpd.gpu.layered import LayeredProvider
from mtpd.proxy.feasibility import Feasibility
from mtpd.types import Absent, Command, EngineKey, LaunchPlan, NotApplicable, UnixEndpoint, Verdict
from mtpd.units import HOST, MIB
from tests.unit.control.made import BINARY, config, profile
from tuner.types import Evicted

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.config.model import Profile

ALPHA = profile("alpha", model=str(bundled_model("tiny-chained.gguf")))
HEADROOM = 100 * MIB


class Keeper:
    """A card that a test describes."""

    def __init__(self, **said: int | None) -> None:
        self.said = said

    def measured(self, plan: LaunchPlan) -> int | None:
        return self.said.get("measured")

    def held(self, profile: str) -> int | None:
        return self.said.get("held")

    async def free_now(self) -> int | None:
        return self.said.get("free")


def account(folder: Path, *, keeper: Keeper | None = None, model: Profile = ALPHA) -> MemoryAccount:
    settings = replace(config(model), budget=BudgetConfig(headroom_mib=100))
    provider = LayeredProvider((HostProvider(),))
    (device,) = provider.devices()
    card = Card(device=device, power_cap_w=None, provider=provider)
    return MemoryAccount(
        config=settings,
        memory=MemoryPlanner(
            config=settings,
            binary=BINARY,
            budget=DeviceBudget.of(card, settings, read=lambda: provider.read(HOST)),
            alone=lambda: True,
            log_of=lambda name: folder / name,
        ),
        feasible=Feasibility(),
        keeper=keeper,  # type: ignore[arg-type]  # the account asks for no more
        host=lambda: HostMemory(
            total_bytes=8_000 * MIB,
            available_bytes=4_000 * MIB,
            cgroup_bytes=NotApplicable("no limit"),
            oom_kills=Absent("not counted"),
        ),
    )


def plan(model: Profile = ALPHA, depth: int = 1, **changes: Any) -> LaunchPlan:
    made = LaunchPlan(
        key=EngineKey(HOST, model.name),
        arm=model.arm(depth),
        command=Command(argv=(), env={}),
        endpoint=UnixEndpoint("/x.sock"),
        fingerprint="f",
    )
    return replace(made, **changes)


async def test_what_was_measured_counts_before_what_is_predicted(tmp_path: Path) -> None:
    predicted = await account(tmp_path).need(plan())
    assert isinstance(predicted, int)
    assert predicted > 1 * MIB
    assert await account(tmp_path, keeper=Keeper()).need(plan()) == predicted
    assert await account(tmp_path, keeper=Keeper(measured=5 * MIB)).need(plan()) == 5 * MIB
    deeper = await account(tmp_path).need(plan(depth=3))
    assert isinstance(deeper, int)
    assert deeper > predicted, "each depth has its own state rows"


async def test_a_start_needs_more_than_the_room_in_which_it_did_not_fit(tmp_path: Path) -> None:
    made = account(tmp_path, keeper=Keeper(measured=5 * MIB))
    short = Verdict(residency=Evicted(1), reason="a test", room_bytes=9_000 * MIB)
    made._feasible.note("f", plan().arm, short)
    assert await made.need(plan()) == 9_000 * MIB + 1
    assert await made.need(plan(fingerprint="g")) == 5 * MIB


async def test_what_cannot_be_predicted_is_not_known(tmp_path: Path) -> None:
    odd = replace(ALPHA, n_gpu_layers=3)
    need = await account(tmp_path, model=odd).need(plan(odd))
    assert need == Absent("its profile says itself how many layers go to the device")


async def test_a_program_of_another_kind_needs_what_its_profile_says(tmp_path: Path) -> None:
    other = replace(ALPHA, opaque=Opaque(command=("whisper",), proxy="http://127.0.0.1:1"))
    made = account(tmp_path, model=other)
    assert isinstance(await made.need(plan(other)), Absent)
    assert await made.need(plan(other, memory_bytes=7 * MIB)) == 7 * MIB
    assert made.held(plan(other, memory_bytes=7 * MIB)) == 7 * MIB


async def test_the_card_says_what_is_free_and_what_must_stay_free_is_left_out(
    tmp_path: Path,
) -> None:
    assert await account(tmp_path, keeper=Keeper(free=900 * MIB)).free([plan()]) == 800 * MIB
    unknown = await account(tmp_path, keeper=Keeper()).free([])
    assert unknown == Absent("the card does not say how much of its memory is free")


async def test_without_a_card_mapped_model_files_are_not_free(tmp_path: Path) -> None:
    made = account(tmp_path)
    nothing = await made.free([])
    assert nothing == 4_000 * MIB - HEADROOM
    assert isinstance(await made.need(plan()), int)
    weights = made._memory.weights_bytes(plan().arm)
    assert weights is not None
    assert weights > 0
    assert await made.free([plan(), plan()]) == nothing - 2 * weights


async def test_what_an_engine_holds_is_measured_or_predicted_or_not_known(tmp_path: Path) -> None:
    made = account(tmp_path, keeper=Keeper(held=3 * MIB))
    assert made.held(plan()) == 3 * MIB
    made = account(tmp_path, keeper=Keeper())
    assert made.held(plan()) == Absent("neither measured nor predicted")
    assert made.held(plan(memory_bytes=4 * MIB)) == 4 * MIB
    predicted = await made.need(plan())
    assert made.held(plan()) == predicted
