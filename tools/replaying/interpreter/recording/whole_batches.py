"""Runs recorded operations for many programs at once: arrays that differ between programs get an
extra first axis.

A batched result is compared at recording with the results for two single programs; unless they are
equal, bit for bit, programs run the operation one after the other.

Example: `create_addptr` on a pointer of shape () and offsets of shape (1024,), with 63 programs. If
both differ between programs, the operands have shapes (63,) and (63, 1024); `aligned` reshapes the
first to (63, 1), so that NumPy broadcasts within each program and never across programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernelwright.tools.replaying.interpreter import guarded_memory
from kernelwright.tools.replaying.interpreter.recording.operations import Arrays, reduction_of

Leads = Sequence[bool]
"""For each operand, True if the first axis counts programs."""
Batched = Callable[[list[Any], Leads], Any]


class BatchedOperation(NamedTuple):
    """The batched form of a step, and the slots of its operands."""

    run: Batched
    operands: tuple[int, ...]


def aligned(values: Sequence[Any], leads: Leads) -> list[Any]:
    """Reshapes arrays to equal rank behind the program axis, so that NumPy broadcasts as for a
    single program."""
    rank = max(value.ndim - lead for value, lead in zip(values, leads, strict=True))
    return [
        value.reshape(value.shape[0], *(1,) * (rank + 1 - value.ndim), *value.shape[1:])
        if lead
        else value
        for value, lead in zip(values, leads, strict=True)
    ]


def plain(function: Callable[..., Any]) -> Batched:
    """Returns the batched form of an elementwise operation."""
    return lambda values, leads: function(*aligned(values, leads))


def by_handles(
    function: Callable[..., Any], dtypes: Sequence[Any], trailing: Sequence[Any], handle: Any
) -> Batched:
    """Returns the batched form of a builder operation that may accept an extra axis."""

    def run(values: list[Any], leads: Leads) -> Any:
        operands = zip(aligned(values, leads), dtypes, strict=True)
        return function(*[handle(value, dtype) for value, dtype in operands], *trailing).data

    return run


def one_by_one(single: Callable[..., Any]) -> Batched:
    """Returns the batched form of an operation whose rounding depends on the batch: a matrix
    product."""

    def run(values: list[Any], leads: Leads) -> Any:
        count = next(len(value) for value, lead in zip(values, leads, strict=True) if lead)
        return np.stack(
            [
                single(
                    *[
                        value[i] if lead else value
                        for value, lead in zip(values, leads, strict=True)
                    ]
                )
                for i in range(count)
            ]
        )

    return run


def shaped(
    name: str, trailing: Sequence[Any], shape: tuple[int, ...], dtype: Any
) -> Batched | None:
    """Returns the batched form of an operation that moves the elements of its operand; None for
    other operations.

    shape, dtype: those of a single program's result.
    """
    rank = len(shape)
    if name in ("create_expand_dims", "create_reshape"):
        return lambda values, leads: values[0].reshape(len(values[0]), *shape)
    if name in ("create_broadcast", "create_splat"):

        def spread(values: list[Any], leads: Leads) -> Any:
            value = values[0]
            flat = value.reshape(len(value), *(1,) * (rank + 1 - value.ndim), *value.shape[1:])
            return np.broadcast_to(
                flat if flat.ndim == rank + 1 else flat.reshape(-1), (len(value), *shape)
            )

        return spread
    if name == "create_trans" and len(trailing) == 1:
        order = (0, *[axis + 1 for axis in trailing[0]])
        return lambda values, leads: np.transpose(values[0], order)
    if name in ("create_bitcast", "create_int_to_ptr", "create_ptr_to_int"):
        return lambda values, leads: np.ascontiguousarray(values[0]).view(dtype)
    return None


def reduction(
    arguments: Sequence[Any], named: Mapping[str, Any], result: Any, single: Arrays
) -> Batched | None:
    """Returns the batched form of a sum or extreme; None for other reductions.

    arguments, named: those of `tl.reduce`. single: computes a single program's result.
    """
    parameters = reduction_of(arguments, named)
    if parameters is None:
        return None
    (function, axis, keep), template = parameters, result.handle.data
    along = 1 if axis is None else axis + 1 if axis >= 0 else axis

    def run(values: list[Any], leads: Leads) -> Any:
        value = values[0].reshape(len(values[0]), -1) if axis is None else values[0]
        reduced = function(value, axis=along, keepdims=keep and axis is not None)
        return reduced.astype(template.dtype).reshape(len(value), *template.shape)

    return run if agrees(run, single, [arguments[0].handle.data], [True]) else None


def of_pure(
    name: str, function: Callable[..., Any], handles: Sequence[Any], moves: Sequence[bool], trailing: Sequence[Any],
    result: Any, quick: Arrays | None,
) -> Batched:  # fmt: skip
    """Returns the batched form of a pure builder operation, program by program if no faster form is
    exact.

    moves: the operands that may differ between programs. quick: computes the result from arrays.
    """
    handle, dtypes = type(result), [h.dtype for h in handles]

    def single(*arrays: Any) -> Any:
        return function(*map(handle, arrays, dtypes), *trailing).data

    layout_change = (
        shaped(name, trailing, result.data.shape, result.data.dtype) if len(handles) == 1 else None
    )
    candidates = (
        layout_change,
        plain(quick) if quick and layout_change is None else None,
        by_handles(function, dtypes, trailing, handle),
    )
    operands = [h.data for h in handles]
    exact_candidates = (
        candidate
        for candidate in candidates
        if candidate is not None and agrees(candidate, quick or single, operands, moves)
    )
    return next(exact_candidates, one_by_one(single))


def access(name: str, arguments: Sequence[Any], np_dtype: Callable[[Any], Any]) -> Batched:
    """Returns the batched form of a load or store, through the launch's guard."""
    shape, guards = arguments[0].data.shape, guarded_memory.current
    loads, masked = "load" in name, "masked" in name
    dtype = np_dtype(arguments[0].get_element_ty())
    has_other = loads and masked and arguments[2] is not None
    volatile = bool(arguments[-1]) if loads else False

    def run(values: list[Any], leads: Leads) -> Any:
        count = next(len(value) for value, lead in zip(values, leads, strict=True) if lead)
        whole = [np.broadcast_to(value, (count, *shape)) for value in values]
        lanes = whole[1 if loads else 2] if masked else np.broadcast_to(np.True_, (count, *shape))
        if not loads:
            return guards[-1].store(whole[0], whole[1], lanes)
        other = whole[2] if has_other else np.broadcast_to(np.zeros((), dtype), (count, *shape))
        return guards[-1].load(whole[0], lanes, other, dtype, volatile)

    return run


def agrees(
    batched: Batched, single: Callable[..., Any], operands: Sequence[Any], moves: Sequence[bool]
) -> bool:
    """Compares the batched operation for two programs with the single operation for each, bit for
    bit.

    The second program has the first one's elements in reverse order. operands: those of the first.
    moves: the operands that may differ between programs.
    """
    if not any(moves):
        return False
    second_operands = [
        np.ascontiguousarray(np.flip(v)) if m else v for v, m in zip(operands, moves, strict=True)
    ]
    try:
        first, second = single(*operands), single(*second_operands)
        both = batched(
            [
                np.stack([v, o]) if m else v
                for v, o, m in zip(operands, second_operands, moves, strict=True)
            ],
            list(moves),
        )
    except Exception:
        return False
    if not isinstance(both, list):
        first, second, both = _parts(first), _parts(second), [both]
    return all(
        len(b) == 2 and _same(b[0, ...], f) and _same(b[1, ...], s)
        for b, f, s in zip(both, first, second, strict=True)
    )


def _parts(result: object) -> list[Any]:
    return result if isinstance(result, list) else [result]


def _same(batched: Any, single: Any) -> bool:
    alike = batched.dtype == single.dtype and batched.shape == single.shape
    return bool(alike and batched.tobytes() == single.tobytes())
