"""Counts the instructions, bytes and products of a thread of a kernel, from its PTX; loops count
once per iteration.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_LABEL = re.compile(r"^(\$L__\w+):")
_BRANCH = re.compile(r"\bbra(?:\.uni)?\s+(\$L__\w+)")
_ACCESS = re.compile(r"\b(ld|st)\.global(?:\.[\w:]+)*?(?:\.v(\d))?\.[a-z]+(\d+)\b")
_ASYNC = re.compile(
    r"\bcp\.async\.c[ag]\.shared\.global[\w.:]*\s*\[[^\]]*\]\s*,\s*\[[^\]]*\]\s*,\s*(0x[0-9a-f]+|\d+)"
)
_PRODUCT = re.compile(r"\b(wgmma\.mma_async|mma)\.[\w.:]*?m(\d+)n(\d+)k(\d+)")
_SLOW = re.compile(r"\b(?:ex2|lg2|sin|cos|tanh|rcp|rsqrt|sqrt|div)\.")
_FREE = ("mov.", "ld.param", "cvta.", "bra", "ret", "//", ".", "{", "}", ")")
_PREDICATE = re.compile(r"^@!?%p\d+\s+")
SLOW_WEIGHT = 4.0
"""A special function has a quarter of the rate (CUDA C++ Programming Guide, Arithmetic Instructions)."""


@dataclass(frozen=True)
class InstructionCounts:
    """Work of a single thread."""

    issued: float = 0.0
    """Returns the number of instructions, with special functions weighted."""
    bytes: float = 0.0
    """Loaded from and stored to global memory."""
    operations: float = 0.0
    """Operations of products on tensor cores, shared over the threads of the warp or warp group."""
    iterations: float = 0.0
    """Iterations of all loops together: each waits for memory once."""


def count_instructions(ptx: str, trips: Sequence[float]) -> InstructionCounts:
    """Counts the instructions of a thread.

    trips: iterations of the outermost loops of the kernel's text, in order. If the compiler
    changed the number of loops, the largest count stands for every loop.
    """
    lines = [line.strip() for line in ptx.splitlines()]
    loops = _outermost(_loops(lines))
    most = max(trips, default=1.0)
    times = list(trips) if len(trips) == len(loops) else [most] * len(loops)
    weights = [1.0] * len(lines)
    for (first, last), count in zip(loops, times, strict=True):
        weights[first : last + 1] = [count] * (last + 1 - first)
    issued = moved = operations = 0.0
    for line, weight in zip(lines, weights, strict=True):
        text = _PREDICATE.sub("", line)
        if not text or text.startswith(_FREE) or _LABEL.match(text):
            continue
        issued += weight * (SLOW_WEIGHT if _SLOW.search(text) else 1.0)
        moved += weight * _bytes(text)
        operations += weight * _operations(text)
    return InstructionCounts(issued, moved, operations, sum(times) if loops else 0.0)


def _loops(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Returns the first and the last line of each loop: a branch back to a label before it."""
    label_lines = {match[1]: i for i, line in enumerate(lines) if (match := _LABEL.match(line))}
    loops = []
    for i, line in enumerate(lines):
        match = _BRANCH.search(line)
        if match and label_lines.get(match[1], i) < i:
            loops.append((label_lines[match[1]], i))
    return loops


def _outermost(loops: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    outermost = [
        loop
        for loop in loops
        if not any(o != loop and o[0] <= loop[0] and loop[1] <= o[1] for o in loops)
    ]
    return sorted(set(outermost))


def _bytes(text: str) -> float:
    if match := _ACCESS.search(text):
        return int(match[2] or 1) * int(match[3]) / 8
    match = _ASYNC.search(text)
    return float(int(match[1], 0)) if match else 0.0


def _operations(text: str) -> float:
    match = _PRODUCT.search(text)
    if match is None:
        return 0.0
    threads = 128 if match[1].startswith("wgmma") else 32
    return 2.0 * int(match[2]) * int(match[3]) * int(match[4]) / threads
