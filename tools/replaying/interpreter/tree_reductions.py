"""`tl.reduce` and `tl.associative_scan` with a combining function of the kernel's own, whole blocks at a time.

Triton's interpreter calls that function once for each element. It is associative, so that a GPU combines in a tree;
here too: a reduction takes neighbours together until one is left, a scan adds what lies 1, 2, 4 ... places before
(Hillis and Steele, 1986). The order of the operands is kept. A function that decides by a value (`if a > b`) cannot
take whole blocks, and gets one element after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernelwright.tools.replaying.interpreter.recording.watched_language import recorded

Arrays = list[Any]


class _DecidesByValue(Exception):
    """A block was asked whether it is true."""


_blocks = [0]
"""How many combinations of whole blocks are going on."""


@contextmanager
def _of_blocks() -> Iterator[None]:
    _blocks[0] += 1
    try:
        yield
    finally:
        _blocks[0] -= 1


def install() -> None:
    """Replaces the slow ways of the interpreter's reductions and scans. After its language has been patched."""
    import triton.language as tl
    from triton.runtime import interpreter

    slow_reduce, slow_scan = interpreter.ReduceOps.generic_reduce, interpreter.ScanOps.generic_scan

    def generic_reduce(self: Any, input: Any) -> Any:
        try:
            return _reduced(self, input)
        except (_DecidesByValue, interpreter.InterpreterError) as error:
            if not _is_decision(error):
                raise
            return slow_reduce(self, input)

    def generic_scan(self: Any, input: Any) -> Any:
        try:
            return _scanned(self, input)
        except (_DecidesByValue, interpreter.InterpreterError) as error:
            if not _is_decision(error):
                raise
            return slow_scan(self, input)

    def truth(self: Any) -> bool:
        if vars(self.handle)["data"].size == 1:
            return bool(self.handle.data)
        if _blocks[0]:
            raise _DecidesByValue
        return True

    interpreter.ReduceOps.generic_reduce, interpreter.ScanOps.generic_scan = generic_reduce, generic_scan
    tl.tensor.__bool__ = truth
    for owner in (tl, tl.core):
        owner.reduce = recorded("reduce", owner.reduce)
        owner.associative_scan = recorded("associative_scan", owner.associative_scan)
    tl.tensor.T = property(recorded("transpose", tl.tensor.T.fget))


def _is_decision(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, _DecidesByValue):
            return True
        error = error.__cause__
    return False


def _combined(op: Any, first: Arrays, second: Arrays, like: Sequence[Any]) -> Arrays:
    """The combining function on arrays of one shape; gives arrays of that shape and of the inputs' types."""
    import triton.language as tl

    made: Callable[[Any, Any], Any] = op.to_tensor
    operands = [made(a, t.dtype) for a, t in zip((*first, *second), (*like, *like), strict=True)]
    with _of_blocks():
        results = op.combine_fn.fn(*operands)
    results = results if isinstance(results, tuple) else tuple(results) if isinstance(results, tl.tuple) else (results,)
    arrays = [r.handle.data if isinstance(r, tl.tensor) else np.asarray(getattr(r, "value", r)) for r in results]
    return [np.broadcast_to(a, f.shape).astype(f.dtype, copy=False) for a, f in zip(arrays, first, strict=True)]


def _reduced(op: Any, given: Sequence[Any]) -> list[Any]:
    """given: tensors of one shape, whose sizes are powers of two."""
    rank = given[0].handle.data.ndim
    inputs, axis = op.unravel(given, op.axis)
    arrays = [np.moveaxis(t.handle.data, axis, 0) for t in inputs]
    while arrays[0].shape[0] > 1:
        arrays = _combined(op, [a[0::2] for a in arrays], [a[1::2] for a in arrays], inputs)
    results = []
    for array, tensor in zip(arrays, inputs, strict=True):
        value = array[0]
        if op.keep_dims:
            value = value.reshape((1,) * rank) if op.axis is None else np.expand_dims(value, axis)
        results.append(op.to_tensor(value if value.ndim else value.item(), tensor.dtype))
    return results


def _scanned(op: Any, inputs: Sequence[Any]) -> list[Any]:
    arrays = [np.moveaxis(t.handle.data, op.axis, 0) for t in inputs]
    count, distance = arrays[0].shape[0], 1
    where = np.arange(count).reshape((count,) + (1,) * (arrays[0].ndim - 1))
    while distance < count:
        before = [np.roll(a, distance, axis=0) for a in arrays]
        combined = _combined(op, before, arrays, inputs)
        arrays = [np.where(where >= distance, c, a) for c, a in zip(combined, arrays, strict=True)]
        distance *= 2
    return [
        op.to_tensor(np.ascontiguousarray(np.moveaxis(a, 0, op.axis)), t.dtype)
        for a, t in zip(arrays, inputs, strict=True)
    ]
