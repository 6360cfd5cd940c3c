"""What an engine needs, what is free and what others hold, on a card and without one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mtpd.config.data import bundled_model
from mtpd.config.model import BudgetConfig, Opaque
from mtpd.control.account import MemoryAccount
from mtpd.control.shapes import DeviceBudget, MemoryPlanner
from mtpd.engine.gguf import read_header
from mtpd.gpu.card import Card
from mtpd.gpu.host import HostMemory, HostProvider
from mtpd.gpu.layered import LayeredProvider
from mtpd.proxy.feasibility import Feasibility
from mtpd.proxy.room import Need, Source
from mtpd.supervise.needs import Needs
from mtpd.types import Absent, Command, EngineKey, LaunchPlan, NotApplicable, UnixEndpoint, Verdict
from mtpd.units import HOST, MIB
from tests.fakes.small_models import write_bert
from tests.unit.control.made import BINARY, config, profile
from tuner.types import Evicted

if TYPE_CHECKING:
    from pathlib import Path

    from mtpd.config.model import Profile

ALPHA = profile("alpha", model=str(bundled_model("tiny-chained.gguf")))
TENSORS_BYTES = sum(one.n_bytes for one in read_header(bundled_model("tiny-chained.gguf")).tensors)
HEADROOM = 100 * MIB


class Keeper:
    """A card, or the machine, that a test describes."""

    def __init__(self, **said: int | None) -> None:
        self.said = said

    def held(self, profile: str) -> int | None:
        return self.said.get("held")

    async def free_now(self) -> int | None:
        return self.said.get("free")

    async def memory_now(self) -> HostMemory:
        return HostMemory(
            total_bytes=8_000 * MIB,
            available_bytes=4_000 * MIB,
            cgroup_bytes=NotApplicable("no limit"),
            oom_kills=Absent("not counted"),
        )


def account(
    folder: Path,
    *,
    keeper: Keeper | None = None,
    host: Keeper | None = None,
    model: Profile = ALPHA,
    measured: int | None = None,
) -> MemoryAccount:
    """The account of a card, or without ``keeper`` of the machine; one start was measured."""
    needs = Needs()
    if measured is not None:
        needs.note("f", model.arm(1), measured)
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
        needs=needs,
        feasible=Feasibility(),
        card=keeper,  # type: ignore[arg-type]  # the account asks for no more
        host=host or Keeper(),  # type: ignore[arg-type]  # the same
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


def count(need: Need | Absent, source: Source) -> int:
    """Bytes of a figure that has this source."""
    assert isinstance(need, Need), need
    assert need.source is source
    return need.count


async def test_what_was_measured_counts_before_what_is_predicted(tmp_path: Path) -> None:
    predicted = await account(tmp_path, keeper=Keeper()).need(plan())
    assert count(predicted, Source.FORECAST) > 1 * MIB
    known = account(tmp_path, keeper=Keeper(), measured=5 * MIB)
    assert await known.need(plan()) == Need(5 * MIB, Source.MEASURED)
    assert await known.need(plan(fingerprint="other")) == predicted, "it was another start"
    deeper = await known.need(plan(depth=3))
    assert count(deeper, Source.FORECAST) > count(predicted, Source.FORECAST), "more state rows"


async def test_without_a_card_the_mapped_file_is_added_to_what_is_its_own(tmp_path: Path) -> None:
    made = account(tmp_path, measured=5 * MIB, host=Keeper(held=7 * MIB))
    assert await made.need(plan()) == Need(5 * MIB + TENSORS_BYTES, Source.MEASURED)
    assert made.held(plan()) == Need(7 * MIB + TENSORS_BYTES, Source.MEASURED)


async def test_a_start_needs_more_than_the_room_in_which_it_did_not_fit(tmp_path: Path) -> None:
    made = account(tmp_path, keeper=Keeper(), measured=5 * MIB)
    short = Verdict(residency=Evicted(1), reason="a test", room_bytes=9_000 * MIB)
    made._feasible.note("f", plan().arm, short)
    assert await made.need(plan()) == Need(9_000 * MIB + 1, Source.MISFIT)
    made._needs.note("f", plan().arm, 9_001 * MIB)
    assert await made.need(plan()) == Need(9_001 * MIB, Source.MEASURED)


async def test_what_cannot_be_predicted_is_declared_or_not_known(tmp_path: Path) -> None:
    odd = replace(ALPHA, n_gpu_layers=3)
    need = await account(tmp_path, model=odd).need(plan(odd))
    assert need == Absent("its profile says itself how many layers go to the device")
    said = replace(odd, vram_mib=700)
    made = account(tmp_path, model=said)
    assert await made.need(plan(said)) == Need(700 * MIB, Source.DECLARED)
    assert made.held(plan(said)) == Need(700 * MIB, Source.DECLARED)


async def test_what_is_declared_counts_least(tmp_path: Path) -> None:
    said = replace(ALPHA, vram_mib=1)
    made = account(tmp_path, keeper=Keeper(), model=said, measured=5 * MIB)
    assert await made.need(plan(said)) == Need(5 * MIB, Source.MEASURED)
    assert count(await made.need(plan(said, depth=0)), Source.FORECAST) > 1 * MIB


async def test_an_encoder_is_bounded_by_its_header(tmp_path: Path) -> None:
    encoder = profile("e", model=str(write_bert(tmp_path / "bert.gguf")), max_depth=0, vram_mib=1)
    made = account(tmp_path, keeper=Keeper(), model=replace(encoder, context=2048))
    bounded = count(await made.need(plan(encoder, depth=0)), Source.BOUND)
    wide = account(tmp_path, keeper=Keeper(), model=replace(encoder, context=65_536))
    assert count(await wide.need(plan(encoder, depth=0)), Source.BOUND) == bounded, "no cache"


async def test_a_program_of_another_kind_needs_what_its_profile_says(tmp_path: Path) -> None:
    other = replace(
        ALPHA, model="", opaque=Opaque(command=("whisper",), proxy="http://127.0.0.1:1")
    )
    found = await account(tmp_path, model=other).need(plan(other))
    assert isinstance(found, Absent)
    assert "vram_mib" in found.reason
    said = replace(other, vram_mib=7)
    made = account(tmp_path, model=said)
    assert await made.need(plan(said)) == Need(7 * MIB, Source.DECLARED)
    assert made.held(plan(said)) == Need(7 * MIB, Source.DECLARED)
    seen = account(tmp_path, model=said, measured=9 * MIB)
    assert await seen.need(plan(said)) == Need(9 * MIB, Source.MEASURED)


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
    one = await made.free([plan()])
    assert one == nothing - TENSORS_BYTES, "although nobody had read its header before"
    assert await made.free([plan(), plan()]) == nothing - 2 * TENSORS_BYTES


async def test_what_an_engine_holds_is_measured_or_predicted_or_not_known(tmp_path: Path) -> None:
    made = account(tmp_path, keeper=Keeper(held=3 * MIB))
    assert made.held(plan()) == Need(3 * MIB, Source.MEASURED)
    made = account(tmp_path, keeper=Keeper())
    assert isinstance(made.held(plan()), Absent), "nothing was read, measured or declared"
    predicted = await made.need(plan())
    assert made.held(plan()) == predicted
    known = account(tmp_path, keeper=Keeper(), measured=4 * MIB)
    assert known.held(plan()) == Need(4 * MIB, Source.MEASURED)


async def test_a_model_that_is_configured_no_more_still_holds_what_it_holds(
    tmp_path: Path,
) -> None:
    made = account(tmp_path, keeper=Keeper(held=3 * MIB))
    gone = plan(replace(ALPHA, name="gone"))
    assert made.held(gone) == Need(3 * MIB, Source.MEASURED)
    made = account(tmp_path)
    assert isinstance(made.held(gone), Absent)
    assert await made.free([gone]) == 4_000 * MIB - HEADROOM
