"""Findings about cards: rights, power cap, sensor, and who else is on them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mtpd.cli.doctor.finding import ERROR, WARNING, Check, Found, Seen, edit, quoted
from mtpd.cli.doctor.rights import READ, WRITE, may
from mtpd.report.text import size
from mtpd.types import Absent, Value
from mtpd.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mtpd.cli.doctor.facts import CardFacts, Facts, Holder
    from mtpd.cli.doctor.rights import Account, Inode

__all__ = ["ACCESS", "CAP", "HOLDERS", "SENSOR"]

MUCH_BYTES: Final = 512 * MIB
"""What a desktop does not hold; below it only other llama-servers are told."""

_DOUBTED: Final = {"unknown": WARNING, "unsupported": WARNING, "undeclared": WARNING}


def _access(facts: Facts) -> Iterator[Found]:
    device = facts.device
    if device.silent is not None:
        says = (
            f"{device.silent}: the daemon starts no engine while nobody knows which card there is"
        )
        yield Found(ERROR, says, "sudo dmesg | tail -n 50    # a card that hangs needs a reset")
    if device.amd and not any(card.vendor == "amd" for card in device.cards):
        says = (
            f"{_cards(device.amd)} of AMD, and its driver shows no memory of it: models would run"
            " on the processor"
        )
        yield Found(ERROR, says, "sudo modprobe amdgpu && sudo dmesg | grep amdgpu")
    for path in device.missing:
        says = f"{path} is not there, without which no program computes on the card"
        yield Found(ERROR, says, "sudo modprobe amdgpu && ls -l /dev/kfd /dev/dri")
    if device.nvidia and not any(card.vendor == "nvidia" for card in device.cards):
        why = dict(device.refused).get("nvml", "NVML was not asked")
        says = (
            f"{_cards(device.nvidia)} of NVIDIA, and it cannot be read ({why}): whether a model is"
            " resident is then not known"
        )
        yield Found(ERROR, says, "pip install 'mtpd[nvidia]' && nvidia-smi")
    for account in (facts.account, facts.visitor):
        if account is None:
            continue
        closed = [one for one in device.nodes if not may(account, one, READ | WRITE)]
        if closed:
            yield _closed(facts, account, closed)


def _cards(addresses: tuple[str, ...]) -> str:
    count = len(addresses)
    return f"there {'is a card' if count == 1 else f'are {count} cards'} ({', '.join(addresses)})"


def _closed(facts: Facts, account: Account, nodes: list[Inode]) -> Found:
    """Device files that a user cannot open; a group of root's opens nothing."""
    serves = account == facts.account
    engines = "engines find no card" if serves else "engines that you start by hand find no card"
    says = (
        f"{account.name} may not open {' and '.join(node.path for node in nodes)}: {engines} and"
        " run on the processor"
    )
    severity = ERROR if serves else WARNING
    groups = list(dict.fromkeys(node.group for node in nodes if node.gid))
    if not groups:
        return Found(severity, says, f"sudo chgrp render {quoted(*(node.path for node in nodes))}")
    fix = f"sudo usermod -aG {','.join(groups)} {quoted(account.name)}"
    if serves and facts.service:
        return Found(severity, says, f"{fix} && sudo systemctl restart mtpd")
    return Found(severity, says, f"{fix}    # then log in again")


def _see_access(facts: Facts) -> Seen:
    cards = facts.device.cards
    if not cards:
        return Seen("there is no card: engines run on the processor", "not_applicable")
    names = ", ".join(f"{card.key}{f' ({card.name})' if card.name else ''}" for card in cards)
    return Seen(f"{names}, open to {facts.account.name}")


def _none(facts: Facts) -> Seen:
    """What is said where no card was seen."""
    if facts.device.silent is None:
        return Seen("there is no card", "not_applicable")
    return Seen("no driver answers", "unknown")


def _cap(facts: Facts) -> Iterator[Found]:
    for card in facts.device.cards:
        severity = ERROR if card.cap_state == "wrong" else _DOUBTED.get(card.cap_state)
        if severity is None:
            continue
        says = f"{card.key}: {card.cap_says}; nothing is measured, as no two speeds would compare"
        yield Found(severity, says, _cap_fix(facts, card))


def _cap_fix(facts: Facts, card: CardFacts) -> str:
    config = facts.config.path
    if card.cap_state == "wrong":
        named = "" if config is None else f" --config {quoted(config)}"
        return f"sudo mtpd powercap apply{named}"
    if card.cap_state == "undeclared":
        then = 'hardware = "NAME" under [budget], with power_cap_w in its profile'
        return edit("", config, then=then)
    return "mtpctl gpu --sources"


def _see_cap(facts: Facts) -> Seen:
    cards = facts.device.cards
    if not cards:
        return _none(facts)
    return Seen("; ".join(f"{card.cap_state}: {card.cap_says}" for card in cards))


def _sensor(facts: Facts) -> Iterator[Found]:
    for card in facts.device.cards:
        if isinstance(card.edge_c, Absent):
            says = (
                f"{card.key}: the edge temperature is unknown ({card.edge_c.reason}): nothing is"
                " measured, as nobody can say that the card is cool"
            )
            yield Found(WARNING, says, "sudo dmesg | grep -iE 'amdgpu|hwmon|nvrm'")


def _see_sensor(facts: Facts) -> Seen:
    cards = facts.device.cards
    if not cards:
        return _none(facts)
    read = [f"{card.edge_c.value:g} °C" for card in cards if isinstance(card.edge_c, Value)]
    if not read:
        return Seen("no card has an edge", "not_applicable")
    return Seen(f"the edge is at {' and '.join(read)}")


def _holders(facts: Facts) -> Iterator[Found]:
    for card in facts.device.cards:
        if isinstance(card.holders, Absent):
            says = f"{card.key}: who holds its memory is not known ({card.holders.reason})"
            yield Found(WARNING, says, "mtpctl gpu --sources")
            continue
        for holder in card.holders:
            if _counts(holder):
                yield _holder(card, holder)


def _counts(holder: Holder) -> bool:
    if "llama" in (holder.name or ""):
        return not (isinstance(holder.bytes_, Value) and holder.bytes_.value == 0)
    return isinstance(holder.bytes_, Value) and holder.bytes_.value >= MUCH_BYTES


def _holder(card: CardFacts, holder: Holder) -> Found:
    """Nothing is ended here: whose process it is, only its owner knows."""
    name = holder.name or "a process"
    held = size(holder.bytes_.value) if isinstance(holder.bytes_, Value) else "an unknown amount"
    says = (
        f"{card.key}: {name} (pid {holder.pid}), no engine of this daemon, holds {held} of its"
        " memory: a model that would fit may be evicted"
    )
    return Found(WARNING, says, f"kill {holder.pid}    # only if you know whose it is")


def _see_holders(facts: Facts) -> Seen:
    if not facts.device.cards:
        return _none(facts)
    return Seen("nobody else holds much memory of a card")


ACCESS: Final = Check(name="card", find=_access, see=_see_access)
CAP: Final = Check(name="power cap", find=_cap, see=_see_cap)
SENSOR: Final = Check(name="sensor", find=_sensor, see=_see_sensor)
HOLDERS: Final = Check(name="memory users", find=_holders, see=_see_holders)
