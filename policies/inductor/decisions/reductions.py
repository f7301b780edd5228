"""Opens the decisions `reduction` (parts in two kernels, or a whole) and `row` (a block of registers, or a loop)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelwright.policies.inductor.decisions.deciding import active_plan, decide
from kernelwright.policies.inductor.decisions.sites import operator_site, scheduled_sites

if TYPE_CHECKING:
    from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures

LEAST_PART = 256
"""Smallest number of elements in a part: a shorter part is not worth a program."""
FULL_GRID = 528
"""Programs of a full grid on a large GPU: four for each of 132 multiprocessors."""


def decide_splits(default: int, reduced: int, results: int) -> int:
    """Returns into how many parts each of a reduction's results is split; 1 for a single kernel.

    reduced: elements summed for a result; results: number of results, both at the problem's own sizes.
    """
    parts = default if default > 1 else _parts_for_full_grid(reduced, results)
    # A sum over few elements, or for many results: parts would be no alternative.
    if parts < 2:
        return default
    preferred = "parts" if default > 1 else "whole"
    form = decide("reduction", operator_site(), preferred, ("whole", "parts"))
    return parts if form == "parts" else 1


def _parts_for_full_grid(reduced: int, results: int) -> int:
    """Returns a number of parts, a power of two, with at least LEAST_PART elements each and a full GPU."""
    most = min(FULL_GRID // max(results, 1), reduced // LEAST_PART)
    return 1 << (most.bit_length() - 1) if most > 1 else 1


def decide_row(features: SIMDKernelFeatures, in_block: bool) -> bool:
    """Returns whether a kernel holds a whole row in registers. A loop is always legal; a block needs a bounded row."""
    from torch._inductor.virtualized import V

    if not in_block or active_plan() is None:
        return in_block
    names = scheduled_sites(V.graph.scheduler)
    sites = [names[node.get_name()] for node in features.reduction_nodes()]
    if not sites:
        return True
    return decide("row", sites[0], "block", ("block", "loop")) == "block"
