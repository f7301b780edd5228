"""`tl.map_elementwise` for Triton's interpreter, which lacks it: a function of single numbers,
applied to whole blocks.

The function may branch and loop by its argument. It is called on the whole block, once for each
path that some lane takes: a decision (`if x < 0`) gets one answer for all lanes, and the results
of this call belong to the lanes that decide so.

Example: `if x < 0: y = -x`, `else: y = x` over [-1, 2] is called twice, with the answers True and
False; the first lane takes its result from the first call, the second lane from the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.tools.replaying.interpreter.comparisons.data_dependence import data_within
from kernelwright.tools.replaying.interpreter.recording.watched_language import recorded

if TYPE_CHECKING:
    import triton.language as tl

MAX_PATHS = 4096
"""Maximum number of paths through one function: a loop has a path for each number of iterations."""

_running: list[_Path] = []
"""Stack of paths being executed."""


class TooManyPaths(RuntimeError):
    """Raised if the lanes of one block take more than MAX_PATHS paths through a function."""


class _Path:
    """Call of the function along one path: the answers to its decisions, and the lanes which
    decide so.
    """

    def __init__(self, answers: Sequence[bool], lanes: np.ndarray) -> None:
        self.answers, self.lanes = list(answers), lanes
        self.branches: list[tuple[bool, ...]] = []
        """Paths which branch off: their answers up to the branch."""
        self._position = 0

    def decide(self, condition: np.ndarray) -> bool:
        """Returns the answer for this way, and leaves the lanes out that decide otherwise."""
        truths = np.broadcast_to(np.asarray(condition, bool).reshape(-1), self.lanes.shape)
        if self._position == len(self.answers):
            holding = self.lanes & truths
            if holding.any() and (self.lanes & ~truths).any():
                self.branches.append((*self.answers, False))
            self.answers.append(bool(holding.any()))
        answer = self.answers[self._position]
        self._position += 1
        self.lanes = self.lanes & (truths == answer)
        return answer


def install() -> None:
    """Gives the interpreter `tl.map_elementwise`, and decisions by value lane by lane. After its
    language has been patched.
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


def map_elementwise(scalar_fn: Callable[..., Any], *args: Any, pack: int = 1, **_: Any) -> Any:
    """Returns the function's results for every lane of blocks broadcast to one shape: a tensor,
    or a tuple of tensors, as in Triton. pack: number of lanes passed side by side to one call of
    the function.
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
def _block(data: np.ndarray, kind: tl.dtype) -> Any:
    import triton.language as tl
    from triton.runtime import interpreter

    return tl.tensor(interpreter.TensorHandle(data, kind), tl.block_type(kind, [len(data)]))


def results_of_lanes(
    function: Callable[..., Any], tensors: Sequence[Any], count: int
) -> tuple[list[Any], bool]:
    """Returns (array, type) of each result of a function which may branch by value, and whether
    it returns a single value.

    The arrays are flat if lanes take different branches. count: number of lanes, the elements of
    every tensor.
    """
    results: list[Any] = []
    single = True
    waiting: list[tuple[bool, ...]] = [()]
    for _ in range(MAX_PATHS):
        if not waiting:
            return results, single
        # Each call takes one path; branches met on its way are called later.
        with _following(waiting.pop(), count) as path:
            values = function(*tensors)
        single = not isinstance(values, tuple | list) and type(values).__name__ != "tuple"
        parts = [_array_and_type(v) for v in ([values] if single else values)]
        if not results and not path.branches:
            return parts, single
        results = results or [(np.zeros(count, array.dtype), kind) for array, kind in parts]
        for (target, _), (array, _) in zip(results, parts, strict=True):
            np.copyto(
                target,
                np.broadcast_to(array.reshape(-1), (count,)),
                where=path.lanes,
                casting="unsafe",
            )
        waiting += path.branches
    raise TooManyPaths(
        f"map_elementwise: more than {MAX_PATHS:,} ways through {function.__name__} in one block"
    )


@contextmanager
def _following(answers: Sequence[bool], count: int) -> Iterator[_Path]:
    path = _Path(answers, np.ones(count, bool))
    _running.append(path)
    try:
        yield path
    finally:
        _running.pop()


def _array_and_type(value: object) -> tuple[Any, Any]:
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
