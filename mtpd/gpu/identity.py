"""Which card an engine gets, and whether it is the one that it names. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mtpd.gpu.base import Device
    from mtpd.units import DeviceKey

__all__ = ["pinned", "same_card"]

_ADDRESS = re.compile(
    r"(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<rest>[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.ASCII
).fullmatch


def same_card(said: str, key: DeviceKey) -> bool | None:
    """Whether two PCI addresses name one card; None where one of them is none.

    Args:
        said: As the engine prints it: upper or lower case, with a domain of four or eight
            digits or without one, which means domain 0.
        key: The configured device.
    """
    ours, theirs = _ADDRESS(key.lower()), _ADDRESS(said.strip().lower())
    if ours is None or theirs is None:
        return None
    domains = [int(match["domain"] or "0", 16) for match in (ours, theirs)]
    return ours["rest"] == theirs["rest"] and domains[0] == domains[1]


def pinned(device: Device, *, vulkan_index: int | None = None) -> dict[str, str]:
    """The environment in which an engine sees one card only.

    ROCr takes the serial number and hands on one device; a second variable on top would
    count within that one, so there is none. Vulkan takes only an index in the order of
    its loader, which no file shows: where it is not known, the engine's own "using
    device" line has to prove the card.

    Args:
        device: The card.
        vulkan_index: Its place in vkEnumeratePhysicalDevices, or None.
    """
    environment: dict[str, str] = {}
    if device.vendor == "amd" and device.uuid is not None:
        environment["ROCR_VISIBLE_DEVICES"] = device.uuid
    if device.vendor == "nvidia" and device.uuid is not None:
        environment["CUDA_VISIBLE_DEVICES"] = device.uuid
        environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if device.vendor != "cpu" and vulkan_index is not None:
        environment["GGML_VK_VISIBLE_DEVICES"] = str(vulkan_index)
    return environment
