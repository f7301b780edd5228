"""`tl.map_elementwise` under Triton's interpreter, which has none: a function of single numbers, over whole blocks.

Such a function may branch and loop by the number that it is given. It is called on the whole block, once for each way
through it that some number takes: a decision (`if x < 0`) is answered for all lanes at once, and the results of that
call are those of the lanes that decide so.

Example: `if x < 0: y = -x`, `else: y = x` over [-1, 2] is called twice, with the answers True and False; the first lane
takes its result from the first call, the second lane from the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernelwright.tools.replaying.interpreter.comparisons.data_dependence import data_within
from kernelwright.tools.replaying.interpreter.recording.watched_language import recorded

MAX_WAYS = 4096
"""Ways through one function that are followed: a loop takes another one for each number of its turns."""

_running: list[_Way] = []
"""The way that is being followed."""


class TooManyWays(RuntimeError):
    """The lanes of one block take more ways through a function than are followed."""


class _Way:
    """One call of the function: how its decisions are answered, and the lanes that decide so."""

    def __init__(self, answers: Sequence[bool], lanes: Any) -> None:
        self.answers, self.lanes = list(answers), lanes
        self.others: list[tuple[bool, ...]] = []
        """Ways that part from this one: their answers up to there."""
        self._position = 0

    def decide(self, condition: Any) -> bool:
        """Returns the answer for this way, and leaves the lanes out that decide otherwise."""
        truths = np.broadcast_to(np.asarray(condition, bool).reshape(-1), self.lanes.shape)
        if self._position == len(self.answers):
            holding = self.lanes & truths
            if holding.any() and (self.lanes & ~truths).any():
                self.others.append((*self.answers, False))
            self.answers.append(bool(holding.any()))
        answer = self.answers[self._position]
        self._position += 1
        self.lanes = self.lanes & (truths == answer)
        return answer


def install() -> None:
    """Gives the interpreter `tl.map_elementwise`, and decisions by value lane by lane. After its language has been
    patched.
    """
    import triton.language as tl

    def decided(self: Any) -> bool:
        data = vars(self.handle)["data"]
        if _running:
            return _running[-1].decide(data)
        return bool(self.handle.data) if data.size == 1 else True

    tl.tensor.__bool__ = decided
    for owner in (tl, tl.core):
        if hasattr(owner, "map_elementwise"):
            owner.map_elementwise = recorded("map_elementwise", map_elementwise)


def map_elementwise(scalar_fn: Any, *args: Any, pack: int = 1, **_: Any) -> Any:
    """The function's results for every lane of blocks that are broadcast to one shape; as in Triton, a tensor, or a
    tuple of tensors. pack: lanes that one call of the function is given, side by side.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    arrays = np.broadcast_arrays(*(vars(a.handle)["data"] for a in args))
    shape = arrays[0].shape
    lanes = [np.ascontiguousarray(a).reshape(-1, pack) for a in arrays]
    types = [a.dtype.scalar for a in args for _ in range(pack)]
    columns = [np.ascontiguousarray(array[:, j]) for array in lanes for j in range(pack)]
    tensors = [_block(c, kind) for c, kind in zip(columns, types, strict=True)]
    results, single = results_of_lanes(
        getattr(scalar_fn, "fn", scalar_fn), tensors, len(columns[0])
    )
    blocks = []
    for number in range(0, len(results), pack):
        parts = results[number : number + pack]
        data = np.stack(
            [np.broadcast_to(array, columns[0].shape) for array, _ in parts], -1
        ).reshape(shape)
        kind = parts[0][1]
        block = tl.block_type(kind, list(shape)) if shape else kind
        blocks.append(tl.tensor(interpreter.TensorHandle(data, kind), block))
    return blocks[0] if single else tuple(blocks)


@data_within
def _block(data: Any, kind: Any) -> Any:
    import triton.language as tl
    from triton.runtime import interpreter

    return tl.tensor(interpreter.TensorHandle(data, kind), tl.block_type(kind, [len(data)]))


def results_of_lanes(
    function: Callable[..., Any], tensors: Sequence[Any], count: int
) -> tuple[list[Any], bool]:
    """Returns (array, type) of each result of a function that may branch by value, and whether it gives one alone. The
    arrays are flat where some lanes branch otherwise than others.

    count: lanes, the elements of every tensor.
    """
    results: list[Any] = []
    single = True
    waiting: list[tuple[bool, ...]] = [()]
    for _ in range(MAX_WAYS):
        if not waiting:
            return results, single
        with _following(waiting.pop(), count) as way:
            values = function(*tensors)
        single = not isinstance(values, tuple | list) and type(values).__name__ != "tuple"
        parts = [_array_and_type(v) for v in ([values] if single else values)]
        if not results and not way.others:
            return parts, single
        results = results or [(np.zeros(count, array.dtype), kind) for array, kind in parts]
        for (target, _), (array, _) in zip(results, parts, strict=True):
            np.copyto(
                target,
                np.broadcast_to(array.reshape(-1), (count,)),
                where=way.lanes,
                casting="unsafe",
            )
        waiting += way.others
    raise TooManyWays(
        f"map_elementwise: more than {MAX_WAYS:,} ways through {function.__name__} in one block"
    )


@contextmanager
def _following(answers: Sequence[bool], count: int) -> Iterator[_Way]:
    way = _Way(answers, np.ones(count, bool))
    _running.append(way)
    try:
        yield way
    finally:
        _running.pop()


def _array_and_type(value: Any) -> tuple[Any, Any]:
    """The array of a result, and its type; a plain number has the type that Triton gives it."""
    import triton.language as tl

    if isinstance(value, tl.tensor):
        return np.asarray(vars(value.handle)["data"]), value.dtype.scalar
    number = getattr(value, "value", value)
    if isinstance(number, bool):
        return np.asarray(number, bool), tl.int1
    if isinstance(number, int):
        return np.asarray(number, np.int32), tl.int32
    return np.asarray(number, np.float32), tl.float32
