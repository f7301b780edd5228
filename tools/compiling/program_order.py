"""The same kernel with its programs numbered from the other end.

A GPU starts the programs of a launch in order, as nothing promises: a kernel whose first program clears what the
others add to is right on every run, until a driver, a partition of the GPU or a neighbour changes the order. Renumbered
in PTX, program 0 does the work of the last one; whatever depends on who comes first shows. Only kernels with atomic
operations are renumbered: without one, programs that write to the same place have nothing to add up. One whose programs
may wait for others, as in a look-back, is launched so only where all of them run at once.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from kernelwright.tools.compiling.text.closure import Contents
from kernelwright.tools.tracing.trace import Traced

_ATOMIC = re.compile(r"^\s*(?:@!?%p\d+\s+)?(?:atom|red)\.", re.MULTILINE)
_NUMBER = re.compile(r"^(\s*)mov\.u32(\s+)(%r\d+),\s*%ctaid\.([xyz]);", re.MULTILINE)


def in_reverse(ptx: str) -> str | None:
    """The PTX with every axis of the grid counted from its end; None where nothing is atomic, or where blocks are
    numbered in clusters.
    """
    if not _ATOMIC.search(ptx) or "cluster" in ptx or not _NUMBER.search(ptx):
        return None
    return _NUMBER.sub(
        r"\1{ .reg .b32 own_place; mov.u32 own_place, %ctaid.\4; mov.u32 \3, %nctaid.\4; "
        r"sub.s32 \3, \3, own_place; add.s32 \3, \3, -1; }",
        ptx,
    )


def may_wait(traced: Traced, kernel: str) -> bool:
    """Whether a program of a kernel, given by its key, may wait for what another one writes: in a loop without a count,
    or in assembly.
    """
    functions = (traced.functions[key] for key in Contents(traced.functions).closure(traced.kernels[kernel]))
    nodes = (node for function in functions for node in ast.walk(ast.parse(function.text)))
    return any(
        isinstance(node, ast.While) or "inline_asm_elementwise" in (getattr(node, "id", ""), getattr(node, "attr", ""))
        for node in nodes
    )


def assembled_in_reverse(made: Any, target: Any) -> bytes:
    """The cubin of a kernel that Triton compiled, renumbered; empty where there is none, or ptxas does not take it.

    made: Triton's CompiledKernel. target: its GPUTarget.
    """
    text = in_reverse(made.asm["ptx"]) if isinstance(made.asm.get("ptx"), str) else None
    if text is None:
        return b""
    from triton.compiler.compiler import make_backend

    backend = make_backend(target)
    options = backend.parse_options(made.metadata._asdict())
    try:
        return bytes(backend.make_cubin(text, made.metadata._asdict(), options, target.arch))
    except Exception:
        return b""  # a check less, and no fault of the candidate
