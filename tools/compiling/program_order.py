"""Renumbers the programs of a compiled kernel from the other end, to reveal dependence on their
order.

A GPU usually starts the programs of a launch in order, without promising so. A kernel whose first
program clears memory that the others add to gives right results until a driver, a partition of
the GPU or a neighbour changes the order. Renumbered in PTX, program 0 does the work of the last
program, which reveals the dependence. Only kernels whose programs may access the same memory are
renumbered: kernels with atomic operations, or with memory both read and written. A kernel whose
programs may wait for others (look-back) is renumbered only if all programs run at once.

Example: `mov.u32 %r1, %ctaid.x;` becomes code which sets %r1 = %nctaid.x - 1 - %ctaid.x.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TYPE_CHECKING

from kernelwright.tools.compiling.reads_and_writes import writes_what_it_reads
from kernelwright.tools.compiling.text.closure import Contents
from kernelwright.tools.parsing import parse_module
from kernelwright.tools.trace.shared_memory import SharedMemory
from kernelwright.tools.trace.trace import Launch, Trace, Traced, all_steps, tensors_of_launch

if TYPE_CHECKING:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import CompiledKernel

_ATOMIC = re.compile(r"^\s*(?:@!?%p\d+\s+)?(?:atom|red)\.", re.MULTILINE)
_NUMBER = re.compile(r"^(\s*)mov\.u32(\s+)(%r\d+),\s*%ctaid\.([xyz]);", re.MULTILINE)


def programs_may_meet(ptx: str, ttir: str, *, shared: bool) -> bool:
    """Returns whether a program may read, or add to, memory which another program writes.

    shared: whether two arguments may lie in the same memory.
    """
    return shared or bool(_ATOMIC.search(ptx)) or writes_what_it_reads(ttir)


def in_reverse(ptx: str) -> str | None:
    """Returns the PTX with every axis of the grid counted from its end; None for kernels with
    clusters or without program numbers.
    """
    if "cluster" in ptx or not _NUMBER.search(ptx):
        return None
    return _NUMBER.sub(
        r"\1{ .reg .b32 own_place; mov.u32 own_place, %ctaid.\4; mov.u32 \3, %nctaid.\4; "
        r"sub.s32 \3, \3, own_place; add.s32 \3, \3, -1; }",
        ptx,
    )


def kernels_with_shared_memory(traced: Traced) -> set[str]:
    """Returns the keys of kernels launched with two tensors in the same memory."""
    return {
        key for trace in traced.traces if trace is not None for key in _given_memory_twice(trace)
    }


def _given_memory_twice(trace: Trace) -> set[str]:
    steps = [*all_steps(trace.setup), *all_steps(trace.first), *all_steps(trace.later or ())]
    launches = [step for step in steps if isinstance(step, Launch)]
    memory = SharedMemory(steps, ())
    kernels = set[str]()
    for launch in launches:
        storages = Counter(memory.storage(number) for number in tensors_of_launch(launch))
        if storages and max(storages.values()) > 1:
            kernels.add(launch.kernel)
    return kernels


def may_wait(traced: Traced, kernel: str) -> bool:
    """Returns whether a program may wait for another program's write: in a loop without a count,
    or in inline assembly. kernel: key of the kernel.
    """
    functions = (
        traced.functions[key] for key in Contents(traced.functions).closure(traced.kernels[kernel])
    )
    nodes = (node for function in functions for node in ast.walk(parse_module(function.text)))
    return any(
        isinstance(node, ast.While)
        or "inline_asm_elementwise" in (getattr(node, "id", ""), getattr(node, "attr", ""))
        for node in nodes
    )


def assembled_in_reverse(compiled: CompiledKernel, target: GPUTarget, *, shared: bool) -> bytes:
    """Returns the renumbered cubin of a compiled kernel; empty if its programs do not meet, or if
    ptxas refuses it.

    compiled: Triton's CompiledKernel. target: its GPUTarget. shared: as in `programs_may_meet`.
    """
    ptx = compiled.asm.get("ptx")
    if not isinstance(ptx, str) or not programs_may_meet(
        ptx, str(compiled.asm.get("ttir", "")), shared=shared
    ):
        return b""
    text = in_reverse(ptx)
    if text is None:
        return b""
    from triton.compiler.compiler import make_backend

    backend = make_backend(target)
    options = backend.parse_options(compiled.metadata._asdict())
    try:
        return bytes(backend.make_cubin(text, compiled.metadata._asdict(), options, target.arch))
    except Exception:
        return b""  # a check less, and no fault of the candidate
