"""What a query names: its metrics, and the labels that it reads of them."""

from __future__ import annotations

import re
from typing import Final

from mtpd.metrics.catalogue import METRICS, Kind

__all__ = ["misnamed", "named"]

_METRIC: Final = re.compile(r"\bmtpd_[a-z0-9_]+")
_SELECTOR: Final = re.compile(r"\b(mtpd_[a-z0-9_]+|up)?\{([^}]*)\}")
_GROUPED: Final = re.compile(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)")
_PARTS: Final = ("_bucket", "_sum", "_count")
_OF_THE_SCRAPE: Final = {"job", "instance", "le"}


def named(query: str) -> dict[str, set[str]]:
    """Every metric of ours in a query, without a histogram's suffix, with its labels."""
    found = {}
    for word in _METRIC.findall(query):
        whole = next((word.removesuffix(one) for one in _PARTS if word.endswith(one)), word)
        spec = METRICS.get(word) or METRICS.get(whole)
        histogram = spec is not None and spec.kind is Kind.HISTOGRAM
        if spec is not None and histogram is (word != whole or word not in METRICS):
            found[word] = set(spec.labels)
    return found


def misnamed(query: str, legend: str = "") -> list[str]:
    """What a query or its legend names and the catalogue does not have."""
    known = named(query)
    wrong = sorted({word for word in _METRIC.findall(query) if word not in known})
    labels = set().union(_OF_THE_SCRAPE, *known.values())
    for word, inside in _SELECTOR.findall(query):
        used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", inside))
        wrong += sorted(used - (known.get(word, set()) | _OF_THE_SCRAPE))
    for inside in _GROUPED.findall(query):
        wrong += sorted(set(re.findall(r"\w+", inside)) - labels)
    return wrong + sorted(set(re.findall(r"\{\{(\w+)\}\}", legend)) - labels)
