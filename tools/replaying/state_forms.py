"""Finds the strides of weights in the candidate's model, by running its set-up on tensors without
data.

The judge's weights have the reference's strides. A candidate may store a weight transposed
(`Parameter(w.t())`), and pass its strides to kernels as numbers. Example: the steps empty([4, 8])
-> t0, t(t0) -> t1 with t1 a weight give {1: (1, 8)}.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kernelwright.tools.replaying import operators
from kernelwright.tools.replaying.steps import OperatorArguments, binder, numbers_made
from kernelwright.tools.report import Failed
from kernelwright.tools.trace.reinterpreted import Table
from kernelwright.tools.trace.trace import Data, Operator, Step

CONTIGUOUS = frozenset(
    ["empty", "zeros", "ones", "full", "rand", "randn", "randint", "arange", "linspace", "eye"]
)
"""Operators with a contiguous result unless a memory format is requested."""


def strides_of(setup: Sequence[Step], numbers: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """Returns strides of these tensors, as far as known; tensors not made by the set-up are
    missing."""
    numbers_to_follow = {n for n in numbers if not _plainly_contiguous(setup, n)}
    if not numbers_to_follow.intersection(
        n for step in setup if isinstance(step, Operator) for n in numbers_made(step)
    ):
        return {}
    table: Table = {}
    for step in setup:
        if isinstance(step, Operator | Data):
            _follow(step, table)
    return {n: tuple(table[n].stride()) for n in numbers_to_follow if n in table}


def _plainly_contiguous(setup: Sequence[Step], number: int) -> bool:
    first = next(
        (s for s in setup if isinstance(s, Operator | Data) and number in numbers_made(s)), None
    )
    if not isinstance(first, Operator):
        return True
    return first.op.split(".")[1] in CONTIGUOUS and "memory_format" not in first.kwargs


def _follow(step: Operator | Data, table: Table) -> None:
    """Runs the step on the meta device. A step that cannot be run yields no tensors."""
    import torch

    if isinstance(step, Data):
        dtype: Any = getattr(torch, step.dtype, None)
        if isinstance(dtype, torch.dtype):
            table[step.t] = torch.empty(step.shape, dtype=dtype, device="meta")
        return
    results = set(numbers_made(step))
    if operators.known(step.op).mutable or results <= table.keys():
        return
    try:
        args, kwargs = OperatorArguments(step, "meta").read(table)
        binder(step.out)(operators.known(step.op).call(*args, **kwargs), table)
    except (Failed, RuntimeError, TypeError, ValueError, NotImplementedError):
        return
