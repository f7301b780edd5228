"""`tl.reduce` and `tl.associative_scan` on whole blocks, in an order possible on a GPU.

Triton's interpreter folds the elements in order, and sums in NumPy's order and precision. Here a
reduction pairs elements in an order drawn from the call's seed (open_order.py): its function must
be associative and commutative. A scan keeps the order of its operands, as Triton does: each
thread scans its own elements, the totals of threads are scanned, and each thread adds the total
before its own. Every step rounds to the operand type: a sum of float16 is a sum of float16
numbers. A function that branches by value is evaluated lane by lane (scalar_functions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.tools.replaying.interpreter.number_formats.bfloat16 import narrow, widen
from kernelwright.tools.replaying.interpreter.open_choices import open_order
from kernelwright.tools.replaying.interpreter.open_choices.folding import (
    Arrays,
    Combine,
    folded,
    running,
    summed,
)
from kernelwright.tools.replaying.interpreter.patches.scalar_functions import results_of_lanes
from kernelwright.tools.replaying.interpreter.recording.watched_language import recorded

if TYPE_CHECKING:
    from triton.runtime.interpreter import ReduceScanOpInterface as ReduceScanOp


def install() -> None:
    """Replaces the interpreter's reductions and scans. After its language has been patched."""
    import triton.language as tl
    from triton.runtime import interpreter

    numpy_reduction = interpreter.ReduceOps.apply_impl
    open_ties = (
        tl.standard._argmax_combine_tie_break_fast,
        tl.standard._argmin_combine_tie_break_fast,
    )

    def reduce_impl(self: Any, input: Any) -> Any:
        if any(self.combine_fn is f for f in open_ties):
            return _with_open_ties(self, input, numpy_reduction)
        return numpy_reduction(self, input)

    def sum_of(self: Any, input: Any) -> Any:
        if input.dtype.name == "bf16":
            return _reduced(self, (input,))[0]
        return self.to_tensor(summed(input.handle.data, self.axis, self.keep_dims), input.dtype)

    interpreter.ReduceOps.apply_impl, interpreter.ReduceOps.sum = reduce_impl, sum_of
    interpreter.ReduceOps.generic_reduce = _reduced
    interpreter.ScanOps.generic_scan = _scanned
    interpreter.ScanOps.cumsum = interpreter.ScanOps.cumprod = lambda self, input: _scanned(
        self, (input,)
    )
    for owner in (tl, tl.core):
        owner.reduce = recorded("reduce", owner.reduce)
        owner.associative_scan = recorded("associative_scan", owner.associative_scan)
    tl.tensor.T = property(recorded("transpose", tl.tensor.T.fget))


def _with_open_ties(
    op: ReduceScanOp, operands: Sequence[Any], reduction: Callable[..., Any]
) -> Any:
    """Returns the extreme and its index; the call's seed chooses among equal values. operands:
    values and indices.
    """
    values = operands[0]
    order = open_order.current().permutation(values.handle.data.shape[op.axis])
    permuted = op.to_tensor(np.take(values.handle.data, order, op.axis), values.dtype)
    extreme, index = reduction(op, (permuted, *operands[1:]))
    index.handle.data = order[index.handle.data].astype(index.handle.data.dtype)
    return extreme, index


def _combination(op: ReduceScanOp, like: Sequence[Any]) -> Combine:
    """Returns the combine function on arrays of one shape; results have that shape and the
    inputs' dtypes.
    """
    import triton.language as tl

    combinations = {tl.standard._sum_combine: np.add, tl.standard._prod_combine: np.multiply}
    arithmetic = next((f for combine, f in combinations.items() if combine is op.combine_fn), None)
    kind = like[0].dtype
    if arithmetic is not None and kind.primitive_bitwidth >= (16 if kind.is_floating() else 8):
        if kind.name == "bf16":
            return lambda first, second: [narrow(arithmetic(widen(first[0]), widen(second[0])))]
        return lambda first, second: [arithmetic(first[0], second[0])]

    def combine(first: Arrays, second: Arrays) -> Arrays:
        operands = [
            op.to_tensor(a, t.dtype) for a, t in zip((*first, *second), (*like, *like), strict=True)
        ]
        results, _ = results_of_lanes(op.combine_fn.fn, operands, first[0].size)
        return [_like(array, f) for (array, _), f in zip(results, first, strict=True)]

    return combine


def _like(array: np.ndarray, operand: np.ndarray) -> Any:
    """Converts an array to shape and dtype of an operand. Results of branching lanes are flat."""
    shaped = (
        array.reshape(operand.shape)
        if array.size == operand.size
        else np.broadcast_to(array, operand.shape)
    )
    return shaped.astype(operand.dtype, copy=False)


def _reduced(op: ReduceScanOp, operands: Sequence[Any]) -> list[Any]:
    """Reduces tensors of one shape, with sizes that are powers of two."""
    rank = operands[0].handle.data.ndim
    inputs, axis = op.unravel(operands, op.axis)
    values = folded([np.moveaxis(t.handle.data, axis, 0) for t in inputs], _combination(op, inputs))
    results = []
    for value, tensor in zip(values, inputs, strict=True):
        if op.keep_dims:
            value = value.reshape((1,) * rank) if op.axis is None else np.expand_dims(value, axis)
        results.append(op.to_tensor(value if value.ndim else value.item(), tensor.dtype))
    return results


def _scanned(op: ReduceScanOp, inputs: Sequence[Any]) -> list[Any]:
    arrays = [np.moveaxis(t.handle.data, op.axis, 0) for t in inputs]
    arrays = running(arrays, _combination(op, inputs))
    return [
        op.to_tensor(np.ascontiguousarray(np.moveaxis(a, 0, op.axis)), t.dtype)
        for a, t in zip(arrays, inputs, strict=True)
    ]
