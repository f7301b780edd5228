"""Counts launches, bytes and operations of a lowered graph without running it.

Bytes are of each buffer read or written by a kernel, once, at the problem's own sizes. A buffer inside a kernel counts
nothing. Repeated loads of a buffer's elements count at a tenth: they come from caches. A tiled product loads each
element once for a whole tile. Operations are the arithmetic calls of a kernel's body times its elements; a
multiplication with an addition inside a product counts as two.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kernelwright.policies.base import Value

if TYPE_CHECKING:
    from torch._inductor.scheduler import BaseSchedulerNode, Scheduler

NOT_ARITHMETIC = frozenset(
    {
        "load", "store", "store_reduction", "index_expr", "constant", "to_dtype", "get_index",
        "indirect_indexing", "masked", "reduction", "partial_accumulate", "set_indirect",
    }
)  # fmt: skip
"""Calls of a loop body without arithmetic."""


CACHED_LOADS_PER_LOAD = 10
"""Loads from a cache in the time of a load from memory (H100: about 33 TB/s of all L1 caches, 3.35 TB/s)."""
TILE = 128
"""Elements of a tile of tl.dot over which each loaded element is used."""


class LaunchFacts(Value):
    """A kernel, or a call of the library, of a lowered graph."""

    operators: tuple[str, ...]
    """Names of the sites computed by the kernel, in order."""
    bytes: int
    """Bytes read and written by the kernel."""
    operations: int
    sizes: tuple[int, ...] = ()
    """Extents of the loops of the kernel's largest operation."""
    is_library: bool = False


class StaticFacts(Value):
    """Counts of a plan's draft."""

    launches: tuple[LaunchFacts, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes read and written by all launches."""
        return sum(launch.bytes for launch in self.launches)

    @property
    def operations(self) -> int:
        """Arithmetic operations of all launches."""
        return sum(launch.operations for launch in self.launches)

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sort key without times: fewest bytes first, then launches, then operations."""
        return self.bytes, len(self.launches), self.operations


def count_launches(scheduler: Scheduler, names: dict[str, str]) -> list[LaunchFacts]:
    """Returns the facts of each scheduled kernel. names: readable names of operations."""
    from torch._inductor.scheduler import (
        ExternKernelSchedulerNode,
        NopKernelSchedulerNode,
    )

    launches = []
    for kernel in scheduler.nodes:
        if isinstance(kernel, NopKernelSchedulerNode):
            continue
        members = list(kernel.get_nodes())
        is_library = isinstance(kernel, ExternKernelSchedulerNode)
        moved = _bytes(kernel)
        if is_library and not moved:
            continue  # a part of a call's result, which no kernel computes
        launches.append(
            LaunchFacts(
                operators=tuple(names[node.get_name()] for node in members),
                bytes=moved,
                operations=sum(map(_operations, members)),
                sizes=max(map(_extents, members), key=math.prod),
                is_library=is_library,
            )
        )
    return launches


def _bytes(kernel: BaseSchedulerNode) -> int:
    """Returns the bytes moved by a kernel, by the rules in the docstring of this module."""
    from torch._inductor.utils import get_dtype_size
    from torch._inductor.virtualized import V

    moved: dict[str, int] = dict(kernel.get_read_write_buffer_accesses(True, True))
    loaded: dict[str, int] = {}
    for node in kernel.get_nodes():
        body: Any = getattr(node, "_body", None)
        if body is None:
            continue
        # A tile of tl.dot loads an element once for TILE products.
        reuse = TILE if body.has_op("dot") else 1
        loads = math.prod(_extents(node)) // reuse
        for read in node.read_writes.reads:
            if read.name in moved:
                size = loads * get_dtype_size(V.graph.get_dtype(read.name))
                # Operations of a kernel share the elements they load.
                loaded[read.name] = max(loaded.get(read.name, 0), size)
    return sum(
        max(size, loaded.get(name, 0) // CACHED_LOADS_PER_LOAD) for name, size in moved.items()
    )


def _extents(node: BaseSchedulerNode) -> tuple[int, ...]:
    """Returns the extents of an operation's loops, those of its reduction last; 1 for an empty axis."""
    from kernelwright.policies.inductor.inductor_patches import size_hint

    groups = getattr(node, "get_ranges", lambda: ())()
    return tuple(max(size_hint(extent), 1) for group in groups for extent in group)


def _operations(node: BaseSchedulerNode) -> int:
    body: Any = getattr(node, "_body", None)
    if body is None:
        flops = node.estimate_flops()
        return int(flops or 0)
    calls = sum(n for name, n in body.op_counts.items() if name not in NOT_ARITHMETIC)
    # `dot` is counted as a call and again here: a multiplication and an addition.
    products = body.op_counts.get("dot", 0)
    reductions = body.op_counts.get("reduction", 0) - products
    return (calls + products + max(reductions, 0)) * math.prod(_extents(node))
