"""Reductions, scans and sums of NumPy arrays in an order possible on a GPU (open_order.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelwright.tools.replaying.interpreter.open_choices import open_order

Arrays = list[Any]
Combine = Callable[[Arrays, Arrays], Arrays]
"""Function which combines first and second operands, elementwise on arrays of one shape."""


def folded(arrays: Arrays, combine: Combine) -> Arrays:
    """Returns a reduction along the first axis, whose size is a power of two."""
    # Each level halves the number of elements.
    for neighbours, swapped in open_order.current().pairings(arrays[0].shape[0]):
        half = arrays[0].shape[0] // 2
        first = [a[0::2] if neighbours else a[:half] for a in arrays]
        second = [a[1::2] if neighbours else a[half:] for a in arrays]
        arrays = combine(second, first) if swapped else combine(first, second)
    return [a[0] for a in arrays]


def running(arrays: Arrays, combine: Combine) -> Arrays:
    """Returns the inclusive scan along the first axis, whose size is a power of two."""
    count = arrays[0].shape[0]
    if count == 1:
        return arrays
    held = open_order.current().thread_elements(count)
    # Step 1: each thread scans the elements that it holds.
    threads = [a.reshape(count // held, held, *a.shape[1:]).copy() for a in arrays]
    for position in range(1, held):
        combined = combine([t[:, position - 1] for t in threads], [t[:, position] for t in threads])
        for thread, result in zip(threads, combined, strict=True):
            thread[:, position] = result
    if count == held:
        return [t.reshape(a.shape) for t, a in zip(threads, arrays, strict=True)]
    # Step 2: the totals of the threads are scanned. Step 3: each thread adds the total before it.
    totals = running([t[:, -1] for t in threads], combine)
    # Triton knows no block of count - 1 threads: the first thread is combined, too, and its result is not taken.
    before = [np.repeat(np.roll(t, 1, axis=0)[:, None], held, axis=1) for t in totals]
    combined = combine(before, threads)
    for thread, result in zip(threads, combined, strict=True):
        thread[1:] = result[1:]
    return [t.reshape(a.shape) for t, a in zip(threads, arrays, strict=True)]


def summed(values: np.ndarray, axis: int | None, keepdims: bool) -> Any:
    """Returns the sum along an axis, or of all elements, rounded at each step to the type of the
    values.

    keepdims: as NumPy's.
    """
    rank = values.ndim
    if values.dtype.kind != "f" or not values.size:
        return np.sum(values, axis=axis, keepdims=keepdims)
    if axis is None:
        flat = summed(values.reshape(-1), 0, False)
        return flat.reshape((1,) * rank) if keepdims else flat
    axis %= rank
    if values.dtype.itemsize < 4:
        # float16 sums are rounded after each addition, as on a GPU.
        halves = folded([np.moveaxis(values, axis, 0)], lambda a, b: [a[0] + b[0]])[0]
        return np.expand_dims(halves, axis) if keepdims else halves
    count = values.shape[axis]
    held = open_order.current().thread_elements(count) if count & (count - 1) == 0 else 1
    threads = values.reshape(*values.shape[:axis], held, count // held, *values.shape[axis + 1 :])
    return np.sum(np.sum(threads, axis=axis), axis=axis, keepdims=keepdims)
