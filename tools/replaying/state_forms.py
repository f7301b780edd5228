"""How a weight lies in memory in the candidate's own model: the host code that made it is followed without values.

The judge's weights lie as the reference's do. A candidate may keep one transposed (`Parameter(w.t())`), and hands its
strides to kernels as numbers.
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
"""Operators whose result is contiguous where no memory format is asked for."""


def strides_of(setup: Sequence[Step], numbers: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """Strides of the tensors of these numbers, as far as the set-up tells; a tensor that it does not make is left
    out.
    """
    wanted = {n for n in numbers if not _plainly_contiguous(setup, n)}
    if not wanted.intersection(
        n for step in setup if isinstance(step, Operator) for n in numbers_made(step)
    ):
        return {}
    table: Table = {}
    for step in setup:
        if isinstance(step, Operator | Data):
            _follow(step, table)
    return {n: tuple(table[n].stride()) for n in wanted if n in table}


def _plainly_contiguous(setup: Sequence[Step], number: int) -> bool:
    first = next(
        (s for s in setup if isinstance(s, Operator | Data) and number in numbers_made(s)), None
    )
    if not isinstance(first, Operator):
        return True
    return first.op.split(".")[1] in CONTIGUOUS and "memory_format" not in first.kwargs


def _follow(step: Operator | Data, table: Table) -> None:
    """The step on tensors without memory. What cannot be followed makes nothing."""
    import torch

    if isinstance(step, Data):
        dtype: Any = getattr(torch, step.dtype, None)
        if isinstance(dtype, torch.dtype):
            table[step.t] = torch.empty(step.shape, dtype=dtype, device="meta")
        return
    made = set(numbers_made(step))
    if operators.known(step.op).mutable or made <= table.keys():
        return
    try:
        args, kwargs = OperatorArguments(step, "meta").read(table)
        binder(step.out)(operators.known(step.op).call(*args, **kwargs), table)
    except (Failed, RuntimeError, TypeError, ValueError, NotImplementedError):
        return
