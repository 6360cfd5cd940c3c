"""Gathers what a memory forecast needs: headers, the budget, sums of earlier starts.

Covers reading files and the card, off the event loop. What follows from it is
``mtpd.control.memory``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from anyio import to_thread

from mtpd.control import memory
from mtpd.control.memory import Budget, MemoryForecast, Shape
from mtpd.control.printed import PrintedSums, calibration
from mtpd.engine import gguf, logs
from mtpd.engine.launch import size_and_time
from mtpd.types import NotApplicable, Value
from tuner.bound import outline
from tuner.memory import assumed, from_gguf, predict
from tuner.types import Drafter, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from mtpd.config.live import Configuration
    from mtpd.config.model import HardwareProfile, Profile
    from mtpd.control.printed import StartSums
    from mtpd.engine.facts import Fact
    from mtpd.gpu.base import GpuReading
    from mtpd.gpu.card import Card
    from mtpd.types import EngineBinary
    from mtpd.units import DeviceKey
    from tuner.bound import Bound, Outline
    from tuner.memory import Geometry, Predicted
    from tuner.types import Arm

__all__ = [
    "DeviceBudget",
    "MemoryPlanner",
    "described",
    "forecast_now",
    "geometry_of",
    "logged_sums",
    "outline_of",
]

_MIB = 2**20
_NO_HEADER = "no engine of ours: what it holds is measured once it runs, or vram_mib says it"
_UNREAD = Unknown("its model file was not read yet")
_NO_DEVICE = NotApplicable("engines run on the host, by design: there is no device to fit into")
_TELLING = ("buffer size", "loading model", "MTP", "n_max=", "n_slots", "loaded", "_recurrent")
"""Words of the lines that ``PrintedSums`` needs; a log is mostly other lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """What a model file says of memory.

    Attributes:
        geometry: For predictions.
        outline: For an upper bound where there is no geometry.
        weights_bytes: All tensors; 0 where the file cannot be read.
    """

    geometry: Geometry | Unknown
    outline: Outline | Unknown
    weights_bytes: int


def _read(path: str) -> _File:
    """Read a header; blocking, a third of a second for 27B."""
    try:
        header = gguf.read_header(Path(path))
    except gguf.GgufError as error:
        unread = Unknown(str(error))
        return _File(geometry=unread, outline=unread, weights_bytes=0)
    weights_bytes = sum(tensor.n_bytes for tensor in header.tensors)
    geometry: Geometry | Unknown = Unknown(f"{path} does not say how large its vocabulary is")
    if header.vocab_size is not None:
        geometry = from_gguf(
            header.architecture,
            header.metadata,
            [(tensor.name, tensor.n_bytes) for tensor in header.tensors],
            vocab=header.vocab_size,
        )
    return _File(
        geometry=geometry,
        outline=outline(
            header.architecture,
            header.metadata,
            weights_bytes=weights_bytes,
            vocab=header.vocab_size,
        ),
        weights_bytes=weights_bytes,
    )


def geometry_of(path: str) -> Geometry | Unknown:
    """The shape of a model file, from its header; blocking."""
    return _read(path).geometry


def outline_of(path: str) -> Outline | Unknown:
    """What an upper bound needs of a model file; blocking."""
    return _read(path).outline


def logged_sums(path: Path) -> StartSums | None:
    """What the last complete start in an engine's log printed, or None; blocking."""
    sums = PrintedSums()
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if any(word in line for word in _TELLING) and (found := logs.fact(line)):
                    sums.hear(found)
    except OSError:
        return None
    return sums.last


class DeviceBudget:
    """How much of the card an engine may take.

    Args:
        read: Reads the card; may block.
        device: Which one, for sentences.
        is_gpu: Whether layers can go to it.
        config: How much stays free, and the hardware that stands in where the card does
            not say how much memory it has.
    """

    def __init__(
        self,
        *,
        read: Callable[[], GpuReading],
        device: DeviceKey,
        is_gpu: bool,
        config: Configuration,
    ) -> None:
        self._ask, self._device, self._is_gpu = read, device, is_gpu
        self._config = config
        self._kept: Budget | None = None

    @classmethod
    def of(cls, card: Card, config: Configuration, *, read: Callable[[], GpuReading]) -> Self:
        """The budget of the card that was found."""
        return cls(
            read=read,
            device=card.key,
            is_gpu=card.is_gpu,
            config=config,
        )

    def read(self, *, alone: bool) -> Budget | NotApplicable:
        """The budget; blocking.

        Args:
            alone: Whether no engine of ours runs. While one does, what was free before
                counts: its memory is free again when it stops.
        """
        if not self._is_gpu:
            return _NO_DEVICE
        if self._kept is None or alone:
            self._kept = self._read()
        kept = replace(self._kept, headroom_bytes=self._headroom_bytes)
        if alone or kept.forecast or kept.free_bytes is None:
            return kept
        return replace(kept, source=f"{kept.source} with no engine of mtpd on it")

    @property
    def usable_bytes(self) -> int | None:
        """What an engine may take, as last measured; None where that was not measured."""
        kept = self._kept
        if kept is None or kept.forecast or kept.free_bytes is None:
            return None
        return kept.free_bytes - self._headroom_bytes

    @property
    def _headroom_bytes(self) -> int:
        return self._config.budget.headroom_mib * _MIB

    def _read(self) -> Budget:
        reading = self._ask()
        total, used = reading.vram_total_bytes, reading.vram_used_bytes
        if isinstance(total, Value) and isinstance(used, Value):
            return Budget(
                free_bytes=total.value - used.value,
                headroom_bytes=self._headroom_bytes,
                source=f"measured on {self._device} by {total.source}",
            )
        if (hardware := self._config.hardware) is not None:
            return described(hardware, self._headroom_bytes)
        return Budget(
            free_bytes=None,
            headroom_bytes=self._headroom_bytes,
            source=f"{self._device} does not say how much is free, and no hardware is named",
        )


def described(hardware: HardwareProfile, headroom_bytes: int) -> Budget:
    """The budget of a card that is only described: all of its memory, less the headroom."""
    return Budget(
        free_bytes=hardware.vram_mib * _MIB,
        headroom_bytes=headroom_bytes,
        source=f"hardware profile {hardware.name}, all of its memory free",
        forecast=True,
    )


def forecast_now(
    config: Configuration,
    profile: Profile,
    budget: Budget | NotApplicable,
    *,
    binary: EngineBinary | None,
    sums: StartSums | None,
    read: Callable[[str], Geometry | Unknown] = geometry_of,
) -> MemoryForecast:
    """Forecast one profile by the header of its file, and of its draft model's; blocking."""
    found = Unknown(_NO_HEADER) if profile.opaque else read(profile.model)
    draft = drafted_by(profile)
    second = None if draft is None else read(draft)
    shape = found if isinstance(found, Unknown) else _shape(profile, found, sums, second)
    margin = memory.margin_bytes(profile, binary, config.budget.headroom_mib)
    return memory.forecast(profile, shape, budget, margin_bytes=margin)


def drafted_by(profile: Profile) -> str | None:
    """The file of the draft model that an engine loads beside the model's own, or None."""
    return profile.drafter.model if profile.drafter.kind is Drafter.DRAFT_MODEL else None


def _shape(
    profile: Profile,
    geometry: Geometry,
    sums: StartSums | None,
    draft: Geometry | Unknown | None,
) -> Shape:
    second = None if isinstance(draft, Unknown) else draft
    base = assumed(geometry, second)
    assume = Shape(geometry=geometry, calibration=base, draft=draft)
    plan = memory.load_plan(profile, 0, assume)
    if isinstance(plan, Unknown) or sums is None:
        return assume
    return replace(assume, calibration=calibration(geometry, plan, sums, base))


class MemoryPlanner:
    """Forecasts for a running daemon; remembers headers and what engines printed.

    Args:
        config: The models.
        binary: The engine.
        budget: Memory of the device.
        alone: Whether no engine of ours runs now.
        log_of: Where the engine of a profile logs; its last start is read once.
    """

    def __init__(
        self,
        *,
        config: Configuration,
        binary: EngineBinary,
        budget: DeviceBudget,
        alone: Callable[[], bool],
        log_of: Callable[[str], Path],
    ) -> None:
        self._config, self._binary, self._budget = config, binary, budget
        self._alone, self._log_of = alone, log_of
        self._files: dict[tuple[str, int, int], _File] = {}
        self._heard: dict[str, PrintedSums] = {}
        self._logged: dict[str, StartSums | None] = {}

    def hear(self, profile: str, fact: Fact) -> None:
        """Take in what the engine of a profile printed."""
        self._heard.setdefault(profile, PrintedSums()).hear(fact)

    def forget(self, profile: str) -> None:
        """What its engine printed was for other settings."""
        self._heard.pop(profile, None)
        self._logged[profile] = None

    async def look(self) -> None:
        """Ask the card how much is free, before any engine of ours runs."""
        await to_thread.run_sync(lambda: self._budget.read(alone=True))

    async def forecast(self, profile: Profile) -> MemoryForecast:
        """Every depth of a profile, as things are now."""
        alone = self._alone()
        return await to_thread.run_sync(lambda: self._forecast(profile, alone=alone))

    def printed(self, arm: Arm) -> StartSums | None:
        """What the last start of an arm printed of the device; None where it was another's."""
        sums = self._sums(arm.profile)
        return sums if sums is not None and sums.depth == arm.depth else None

    def most_bytes(self, arm: Arm) -> int | None:
        """Device memory that an arm takes at most; None before its first forecast."""
        predicted = self._predicted(arm)
        return None if predicted is None else predicted.high

    async def read(self, arm: Arm) -> None:
        """Read the header of an arm's model file, unless that was done."""
        profile = self._config.profiles.get(arm.profile)
        if profile is None or profile.opaque is not None:
            return
        for path in filter(None, (profile.model, drafted_by(profile))):
            if self._known(path) is None:
                await to_thread.run_sync(self._shape, path)

    def bound(self, arm: Arm) -> Bound | Unknown:
        """What an arm takes at most where no forecast covers it, or why that is not known."""
        profile = self._config.profiles.get(arm.profile)
        found = None if profile is None else self._known(profile.model)
        if profile is None or found is None:
            return _UNREAD
        return memory.most(profile, arm.depth, found.outline)

    def weights_bytes(self, arm: Arm) -> int:
        """Bytes of its files that an engine maps; 0 of those that were not read yet."""
        profile = self._config.profiles.get(arm.profile)
        if profile is None:
            return 0
        paths = (profile.model, drafted_by(profile) if arm.depth else None)
        found = (self._known(path) for path in paths if path is not None)
        return sum(one.weights_bytes for one in found if one is not None)

    @property
    def usable_bytes(self) -> int | None:
        """Device memory that an engine may take, as last measured; None where it was not."""
        return self._budget.usable_bytes

    def certain(self, arm: Arm) -> bool:
        """Whether an arm is certain to fit into what was measured to be free."""
        most, usable = self.most_bytes(arm), self._budget.usable_bytes
        return most is not None and usable is not None and most <= usable

    def _predicted(self, arm: Arm) -> Predicted | None:
        profile = self._config.profiles.get(arm.profile)
        found = None if profile is None else self._known(profile.model)
        if profile is None or found is None or isinstance(found.geometry, Unknown):
            return None
        draft = drafted_by(profile)
        second = None if draft is None else self._known(draft)
        shape = _shape(
            profile,
            found.geometry,
            self._sums(profile.name),
            None if second is None else second.geometry,
        )
        plan = memory.load_plan(profile, arm.depth, shape)
        if isinstance(plan, Unknown):
            return None
        return predict(shape.geometry, plan, shape.calibration)

    def _forecast(self, profile: Profile, *, alone: bool) -> MemoryForecast:
        return forecast_now(
            self._config,
            profile,
            self._budget.read(alone=alone),
            binary=self._binary,
            sums=self._sums(profile.name),
            read=self._shape,
        )

    def _known(self, path: str) -> _File | None:
        """What a file said when it was last read, if it is still the same."""
        found = size_and_time(path)
        return None if found is None else self._files.get((path, *found))

    def _shape(self, path: str) -> Geometry | Unknown:
        found = size_and_time(path)
        if found is None:
            return geometry_of(path)
        key = (path, *found)
        if key not in self._files:
            self._files[key] = _read(path)
        return self._files[key].geometry

    def _sums(self, name: str) -> StartSums | None:
        heard = self._heard.get(name)
        if heard is not None and heard.last is not None:
            return heard.last
        if name not in self._logged:
            self._logged[name] = logged_sums(self._log_of(name))
        return self._logged[name]
