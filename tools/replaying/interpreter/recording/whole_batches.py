"""The operations of a record for many programs at once: arrays that differ from program to program have one more axis,
the first, with a place for each program.

What an operation computes so is compared, when it is recorded, with what it gives for each of two programs alone; where
that is not the same to the bit, programs do it one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kernelwright.tools.replaying.interpreter import guarded_memory
from kernelwright.tools.replaying.interpreter.recording.operations import Arrays, reduction_of

Leads = Sequence[bool]
"""For each operand, whether its first axis counts the programs."""
Batched = Callable[[list[Any], Leads], Any]


class BatchedOperation(NamedTuple):
    """What does a step for many programs, with the values of these slots."""

    run: Batched
    operands: tuple[int, ...]


def aligned(values: Sequence[Any], leads: Leads) -> list[Any]:
    """The arrays with as many axes each behind that of the programs, so that NumPy spreads them as it would for one
    program.
    """
    rank = max(value.ndim - lead for value, lead in zip(values, leads, strict=True))
    return [
        value.reshape(value.shape[0], *(1,) * (rank + 1 - value.ndim), *value.shape[1:])
        if lead
        else value
        for value, lead in zip(values, leads, strict=True)
    ]


def plain(function: Callable[..., Any]) -> Batched:
    """Makes the batched form of an operation that takes each element by itself."""
    return lambda values, leads: function(*aligned(values, leads))


def by_handles(
    function: Callable[..., Any], dtypes: Sequence[Any], rest: Sequence[Any], handle: Any
) -> Batched:
    """Makes the batched form of an operation of the builder that may not mind one more axis."""

    def run(values: list[Any], leads: Leads) -> Any:
        given = zip(aligned(values, leads), dtypes, strict=True)
        return function(*[handle(value, dtype) for value, dtype in given], *rest).data

    return run


def one_by_one(single: Callable[..., Any]) -> Batched:
    """Makes the batched form of an operation whose last bits depend on how many are done at once: a product."""

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


def shaped(name: str, rest: Sequence[Any], shape: tuple[int, ...], kept: Any) -> Batched | None:
    """Makes the batched form of an operation that moves the elements of one operand; None for every other one. shape:
    of one program's result.
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
    if name == "create_trans" and len(rest) == 1:
        order = (0, *[axis + 1 for axis in rest[0]])
        return lambda values, leads: np.transpose(values[0], order)
    if name in ("create_bitcast", "create_int_to_ptr", "create_ptr_to_int"):
        return lambda values, leads: np.ascontiguousarray(values[0]).view(kept)
    return None


def reduction(
    arguments: Sequence[Any], named: Mapping[str, Any], made: Any, single: Arrays
) -> Batched | None:
    """Of a sum or an extreme along an axis, or of a whole block; None where it is another one.

    arguments and named: of `tl.reduce`. single: what gives it for one program.
    """
    found = reduction_of(arguments, named)
    if found is None:
        return None
    (function, axis, keep), kept = found, made.handle.data
    along = 1 if axis is None else axis + 1 if axis >= 0 else axis

    def run(values: list[Any], leads: Leads) -> Any:
        value = values[0].reshape(len(values[0]), -1) if axis is None else values[0]
        reduced = function(value, axis=along, keepdims=keep and axis is not None)
        return reduced.astype(kept.dtype).reshape(len(value), *kept.shape)

    return run if agrees(run, single, [arguments[0].handle.data], [True]) else None


def of_pure(
    name: str, function: Callable[..., Any], handles: Sequence[Any], moves: Sequence[bool], rest: Sequence[Any],
    made: Any, quick: Arrays | None,
) -> Batched:  # fmt: skip
    """Of an operation of the builder that is a function of its operands: for one program after the other where no way
    agrees with it.

    moves: which of the operands may differ between programs. quick: what gives the result from bare arrays.
    """
    handle, dtypes = type(made), [h.dtype for h in handles]

    def single(*arrays: Any) -> Any:
        return function(*map(handle, arrays, dtypes), *rest).data

    moved = shaped(name, rest, made.data.shape, made.data.dtype) if len(handles) == 1 else None
    ways = (
        moved,
        plain(quick) if quick and moved is None else None,
        by_handles(function, dtypes, rest, handle),
    )
    given = [h.data for h in handles]
    found = (way for way in ways if way is not None and agrees(way, quick or single, given, moves))
    return next(found, one_by_one(single))


def access(name: str, arguments: Sequence[Any], np_dtype: Callable[[Any], Any]) -> Batched:
    """Makes the batched form of a load or a store, through the guard of the launch."""
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
    batched: Batched, single: Callable[..., Any], given: Sequence[Any], moves: Sequence[bool]
) -> bool:
    """Whether the operation gives for two programs at once, the second with the elements in the opposite order, what it
    gives for each of them alone.

    given: the operands. moves: which of them may differ between programs.
    """
    if not any(moves):
        return False
    others = [
        np.ascontiguousarray(np.flip(v)) if m else v for v, m in zip(given, moves, strict=True)
    ]
    try:
        first, second = single(*given), single(*others)
        both = batched(
            [np.stack([v, o]) if m else v for v, o, m in zip(given, others, moves, strict=True)],
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


def _parts(result: Any) -> list[Any]:
    return result if isinstance(result, list) else [result]


def _same(found: Any, wanted: Any) -> bool:
    alike = found.dtype == wanted.dtype and found.shape == wanted.shape
    return bool(alike and found.tobytes() == wanted.tobytes())
