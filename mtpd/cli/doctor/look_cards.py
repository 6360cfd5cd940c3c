"""Looking at cards: what the bus has, what the drivers show, and who is on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mtpd.cli.doctor.facts import CardFacts, DeviceFacts, Holder
from mtpd.cli.doctor.machine import inode_of
from mtpd.gpu.detect import detect
from mtpd.gpu.powercap import judge
from mtpd.gpu.worker import TelemetryThread
from mtpd.supervise.identity import engine_of
from mtpd.types import Absent

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from mtpd.cli.doctor.machine import Machine
    from mtpd.cli.doctor.rights import Inode
    from mtpd.gpu.base import Device
    from mtpd.gpu.detect import Detection
    from mtpd.gpu.views import PowerCapView

__all__ = ["look"]

_AMD, _NVIDIA = "0x1002", "0x10de"
_DISPLAY: Final = "0x03"
"""How the class of a display controller begins on the PCI bus."""
_NODES: Final = {
    "amd": ("dev/kfd", "dev/dri/render*"),
    "nvidia": ("dev/nvidiactl", "dev/nvidia[0-9]*"),
}


async def look(
    machine: Machine,
    *,
    wanted_w: float | None,
    caps: Mapping[str, PowerCapView],
    ours: Collection[int],
) -> DeviceFacts:
    """Look at every card; a driver may hang, so in a thread of its own and with a deadline.

    Args:
        machine: Where.
        wanted_w: The declared power cap, or None.
        caps: What a running daemon says of power caps, by device: it has seen cards busy.
        ours: Processes of the daemon and its engines.
    """
    thread = TelemetryThread(deadline_s=machine.driver_s)
    try:
        found = await thread.ask(lambda: _look(machine, wanted_w=wanted_w, caps=caps, ours=ours))
    finally:
        thread.close()
    return DeviceFacts(silent=found.reason) if isinstance(found, Absent) else found


def _look(
    machine: Machine,
    *,
    wanted_w: float | None,
    caps: Mapping[str, PowerCapView],
    ours: Collection[int],
) -> DeviceFacts:
    found = detect(root=machine.root)
    try:
        cards = tuple(
            _card(found, one, wanted_w=wanted_w, caps=caps, ours=ours)
            for one in found.devices
            if one.vendor != "cpu"
        )
    finally:
        found.provider.close()
    amd = tuple(_on_bus(machine, _AMD)) or _of(cards, "amd")
    nvidia = tuple(_on_bus(machine, _NVIDIA)) or _of(cards, "nvidia")
    vendors = (*(["amd"] if amd else []), *(["nvidia"] if nvidia else []))
    return DeviceFacts(
        amd=amd,
        nvidia=nvidia,
        cards=cards,
        nodes=tuple(_nodes(machine, vendors)),
        missing=tuple(_missing(machine)) if amd else (),
        refused=tuple((one.provider, one.reason) for one in found.refused),
    )


def _card(
    found: Detection,
    device: Device,
    *,
    wanted_w: float | None,
    caps: Mapping[str, PowerCapView],
    ours: Collection[int],
) -> CardFacts:
    key = device.key
    verdict = judge(found.provider.power_cap(key), wanted_w=wanted_w)
    state, says = verdict.state.value, verdict.reason
    if key in caps:
        state, says = caps[key].state, caps[key].reason
    processes = found.provider.processes(key)
    return CardFacts(
        key=key,
        name=device.name,
        vendor=device.vendor,
        cap_state=state,
        cap_says=says,
        cap_wanted=wanted_w is not None,
        edge_c=found.provider.read(key).edge_c,
        holders=processes
        if isinstance(processes, Absent)
        else tuple(
            Holder(pid=one.pid, name=one.name, bytes_=one.vram_bytes)
            for one in processes
            if one.pid not in ours and engine_of(one.pid) is None
        ),
    )


def _of(cards: tuple[CardFacts, ...], vendor: str) -> tuple[str, ...]:
    return tuple(card.key for card in cards if card.vendor == vendor)


def _on_bus(machine: Machine, vendor: str) -> Iterator[str]:
    """Addresses of a vendor's display controllers, whether or not a driver has them."""
    folder = machine.at("sys/bus/pci/devices")
    for name in sorted(one.name for one in folder.iterdir()) if folder.is_dir() else ():
        kind = machine.text(f"sys/bus/pci/devices/{name}/class") or ""
        whose = machine.text(f"sys/bus/pci/devices/{name}/vendor") or ""
        if kind.startswith(_DISPLAY) and whose.strip() == vendor:
            yield name.lower()


def _nodes(machine: Machine, vendors: tuple[str, ...]) -> Iterator[Inode]:
    for vendor in vendors:
        for pattern in _NODES[vendor]:
            for path in sorted(machine.root.glob(pattern)):
                node = inode_of(path, shown=f"/{path.relative_to(machine.root)}")
                if node is not None:
                    yield node


def _missing(machine: Machine) -> Iterator[str]:
    if not machine.has("dev/kfd"):
        yield "/dev/kfd"
    if not any(machine.root.glob("dev/dri/render*")):
        yield "/dev/dri/renderD128"
