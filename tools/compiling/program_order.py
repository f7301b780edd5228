"""The same kernel with its programs numbered from the other end.

A GPU starts the programs of a launch in order, as nothing promises: a kernel whose first program clears what the
others add to is right on every run, until a driver, a partition of the GPU or a neighbour changes the order. Renumbered
in PTX, program 0 does the work of the last one; whatever depends on who comes first shows. Only kernels are renumbered
in which one program may meet what another wrote: with atomic operations, or with memory that is read and written. One
whose programs may wait for others, as in a look-back, is launched so only where all of them run at once.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import Any

from kernelwright.tools.compiling.reads_and_writes import writes_what_it_reads
from kernelwright.tools.compiling.text.closure import Contents
from kernelwright.tools.parsing import parse_module
from kernelwright.tools.trace.shared_memory import SharedMemory
from kernelwright.tools.trace.trace import Launch, Trace, Traced, all_steps, tensors_of_launch

_ATOMIC = re.compile(r"^\s*(?:@!?%p\d+\s+)?(?:atom|red)\.", re.MULTILINE)
_NUMBER = re.compile(r"^(\s*)mov\.u32(\s+)(%r\d+),\s*%ctaid\.([xyz]);", re.MULTILINE)


def programs_may_meet(ptx: str, ttir: str, *, shared: bool) -> bool:
    """Whether one program of a kernel may read or add to what another one writes.

    shared: whether two of its arguments may lie in the same memory.
    """
    return shared or bool(_ATOMIC.search(ptx)) or writes_what_it_reads(ttir)


def in_reverse(ptx: str) -> str | None:
    """The PTX with every axis of the grid counted from its end; None where blocks are numbered in clusters, or not at
    all.
    """
    if "cluster" in ptx or not _NUMBER.search(ptx):
        return None
    return _NUMBER.sub(
        r"\1{ .reg .b32 own_place; mov.u32 own_place, %ctaid.\4; mov.u32 \3, %nctaid.\4; "
        r"sub.s32 \3, \3, own_place; add.s32 \3, \3, -1; }",
        ptx,
    )


def kernels_with_shared_memory(traced: Traced) -> set[str]:
    """The keys of kernels that some launch is given two tensors in the same memory."""
    return {
        key for trace in traced.traces if trace is not None for key in _given_memory_twice(trace)
    }


def _given_memory_twice(trace: Trace) -> set[str]:
    steps = [*all_steps(trace.setup), *all_steps(trace.first), *all_steps(trace.later or ())]
    launches = [step for step in steps if isinstance(step, Launch)]
    memory = SharedMemory(steps, ())
    found = set[str]()
    for launch in launches:
        places = Counter(memory.storage(number) for number in tensors_of_launch(launch))
        if places and max(places.values()) > 1:
            found.add(launch.kernel)
    return found


def may_wait(traced: Traced, kernel: str) -> bool:
    """Whether a program of a kernel, given by its key, may wait for what another one writes: in a loop without a count,
    or in assembly.
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


def assembled_in_reverse(made: Any, target: Any, *, shared: bool) -> bytes:
    """The cubin of a kernel that Triton compiled, renumbered; empty where its programs do not meet, or ptxas does not
    take it.

    made: Triton's CompiledKernel. target: its GPUTarget. shared: as in `programs_may_meet`.
    """
    ptx = made.asm.get("ptx")
    if not isinstance(ptx, str) or not programs_may_meet(
        ptx, str(made.asm.get("ttir", "")), shared=shared
    ):
        return b""
    text = in_reverse(ptx)
    if text is None:
        return b""
    from triton.compiler.compiler import make_backend

    backend = make_backend(target)
    options = backend.parse_options(made.metadata._asdict())
    try:
        return bytes(backend.make_cubin(text, made.metadata._asdict(), options, target.arch))
    except Exception:
        return b""  # a check less, and no fault of the candidate
