"""Device memory of the recurrent state, the part that grows with the draft depth.

Covers the rollback rows of hybrid models and which depths a given amount of free memory
can hold. Weights, KV cache and compute buffers come in as one measured or computed sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["QWEN35_27B", "DepthMemory", "RecurrentGeometry", "feasible", "rs_mib"]

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentGeometry:
    """Shape of a model's recurrent (Gated DeltaNet) state, from its GGUF header.

    Attributes:
        layers: Recurrent layers.
        conv_kernel: ``ssm.conv_kernel``.
        inner: ``ssm.inner_size``.
        groups: ``ssm.group_count``.
        state: ``ssm.state_size``.
        element_bytes: Bytes per element; the engine keeps the state in 32 bits.
    """

    layers: int
    conv_kernel: int
    inner: int
    groups: int
    state: int
    element_bytes: int = 4

    @property
    def row_mib(self) -> float:
        """MiB of one row: one slot, one rollback position."""
        conv = (self.conv_kernel - 1) * (self.inner + 2 * self.groups * self.state)
        return self.layers * (conv + self.state * self.inner) * self.element_bytes / _MIB


QWEN35_27B: Final = RecurrentGeometry(layers=48, conv_kernel=4, inner=6144, groups=16, state=128)
"""The 27B hybrid of both studies: 149.625 MiB per row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthMemory:
    """Whether a depth fits.

    Attributes:
        depth: Draft depth.
        need_mib: All device memory that it needs.
        left_mib: What remains of the free memory; negative by how much it is missed.
    """

    depth: int
    need_mib: float
    left_mib: float

    @property
    def fits(self) -> bool:
        """Whether it fits."""
        return self.left_mib >= 0


def rs_mib(geometry: RecurrentGeometry, *, slots: int, depth: int) -> float:
    """MiB of recurrent state: every slot keeps one row and one more per draft token."""
    return slots * (1 + depth) * geometry.row_mib


def feasible(
    depths: Iterable[int],
    *,
    geometry: RecurrentGeometry,
    slots: int,
    rest_mib: float,
    drafter_mib: float,
    free_mib: float,
) -> tuple[DepthMemory, ...]:
    """Memory per depth, shallow to deep; if a depth does not fit, no deeper one does.

    Args:
        depths: Depths of interest.
        geometry: Shape of the recurrent state.
        slots: Parallel slots.
        rest_mib: Weights, KV cache and compute buffers without drafting.
        drafter_mib: What drafting adds at any depth above 0: the head's KV and buffers.
        free_mib: Device memory that may be used, after any margin.
    """
    out: list[DepthMemory] = []
    for depth in sorted(set(depths)):
        need = rest_mib + rs_mib(geometry, slots=slots, depth=depth)
        if depth:
            need += drafter_mib
        out.append(DepthMemory(depth=depth, need_mib=need, left_mib=free_mib - need))
    return tuple(out)
