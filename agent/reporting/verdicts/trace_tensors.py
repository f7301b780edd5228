"""Names the tensors of a trace, and infers their shapes without running anything: inputs,
weights, allocations, views.

Example: `empty([512, 4096])` gives t7 the shape (512, 4096); then `view(t7, [-1])` gives t8 the
shape (2097152,).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kernelwright.tools.trace.trace import Data, Json, Operator, Trace, tensors_in

OPERATORS_OF_THE_SAME_TENSOR = frozenset({"detach", "alias", "lift_fresh"})
"""Operators whose result is their argument under another number: both have the same name."""
OPERATORS_OF_EQUAL_SHAPE = frozenset(
    {"clone", "contiguous", "copy_", "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like",
    "fill_", "zero_", "_to_copy"}
)  # fmt: skip
"""Operators whose result has the shape of the first argument."""
OPERATORS_WITH_SHAPE_FIRST = frozenset(
    {"empty", "zeros", "ones", "full", "rand", "randn", "empty_strided", "empty_permuted"}
)
"""Operators whose first argument is the shape."""
OPERATORS_WITH_SHAPE_SECOND = frozenset(
    {"new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided", "as_strided", "expand"}
)
"""Operators whose second argument is the shape; the dtype is that of the first argument."""
RESHAPING_OPERATORS = frozenset({"view", "_unsafe_view", "reshape", "_reshape_alias"})


class KnownTensor(NamedTuple):
    """The shape and the dtype of a tensor, as far as they are known."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def text(self) -> str:
        """Formats a tensor: `float32[512, 4096]`."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Tensors:
    """Names and shapes of the tensors of a trace: `x0` is the first input, `w:NAME` a weight or a
    buffer, `t7` any other tensor. `learn` follows a step.
    """

    def __init__(self, trace: Trace, inputs: Json) -> None:
        """inputs: described as in `tools.references.input_spec.InputSpec.inputs`."""
        self._names = {number: f"w:{name}" for name, number in trace.state.items()}
        self._tensors: dict[int, KnownTensor] = {}
        for name, number in trace.state.items():
            if name in trace.shapes:
                shape, dtype = tuple(trace.shapes[name]), trace.dtypes.get(name, "")
                self._tensors[number] = KnownTensor(shape, dtype)
        for arguments in (trace.inputs, trace.later_inputs):
            self._name_inputs(arguments, inputs)
        self._first_inputs = set(tensors_in(list(trace.inputs))) - set(
            tensors_in(list(trace.later_inputs))
        )

    def _name_inputs(self, arguments: Sequence[Json], inputs: Json) -> None:
        specs = inputs if isinstance(inputs, list) else []
        for index, value in enumerate(arguments):
            numbers = list(tensors_in(value))
            # An argument may be a list of tensors: x0[0], x0[1] and so on.
            described = list(_tensor_specs(specs[index])) if index < len(specs) else []
            for k, number in enumerate(numbers):
                self._names[number] = f"x{index}" if len(numbers) == 1 else f"x{index}[{k}]"
                if len(described) == len(numbers):
                    self._tensors[number] = KnownTensor(
                        tuple(described[k]["shape"]), str(described[k]["dtype"])
                    )

    def later_calls_follow(self) -> None:
        """Renames the inputs of the first call for the later calls: `x0 of the first call` is a
        tensor that the code has stored.
        """
        for number in self._first_inputs:
            self._names[number] = f"{self._names[number]} of the first call"
        self._first_inputs = set()

    def name(self, number: int) -> str:
        """Returns the name of a tensor by its number."""
        return self._names.get(number, f"t{number}")

    def described(self, number: int) -> str:
        """Formats a tensor: `float32[512, 4096]`; empty if its shape is not known."""
        return self._tensors[number].text if number in self._tensors else ""

    def learn(self, step: Operator | Data) -> None:
        """Infers name, shape and dtype of a step's results."""
        if isinstance(step, Data):
            self._tensors[step.t] = KnownTensor(tuple(step.shape), step.dtype)
            return
        results = list(tensors_in(step.out))
        if len(results) != 1:
            return
        used = list(tensors_in(step.args))
        if _base_name(step.op) in OPERATORS_OF_THE_SAME_TENSOR and used:
            self._names[results[0]] = self.name(used[0])
            tensor = self._tensors.get(used[0])
        else:
            tensor = self._result(step, self._tensors.get(used[0]) if used else None)
        if tensor is not None and all(type(n) is int for n in tensor.shape):
            self._tensors[results[0]] = tensor

    def _result(self, step: Operator, first: KnownTensor | None) -> KnownTensor | None:
        """Returns the result of an operator with one result. `first`: its first tensor argument."""
        name, args = _base_name(step.op), step.args
        dtype = _dtype_of(step.kwargs, first.dtype if first else "float32")
        if name in OPERATORS_WITH_SHAPE_FIRST and args and isinstance(args[0], list):
            return KnownTensor(tuple(args[0]), _dtype_of(step.kwargs, "float32"))
        if first is None:
            return None
        if name in OPERATORS_OF_EQUAL_SHAPE:
            return KnownTensor(first.shape, dtype)
        requested = args[1] if len(args) > 1 else None
        if isinstance(requested, list):
            if name in OPERATORS_WITH_SHAPE_SECOND and -1 not in requested:
                return KnownTensor(tuple(requested), dtype)
            if name in RESHAPING_OPERATORS:
                return KnownTensor(_filled(requested, first.shape), dtype)
        shape = _moved(name, first.shape, args)
        return None if shape is None else KnownTensor(shape, dtype)


def is_same_tensor(step: object) -> bool:
    """Returns whether a step only gives its argument another number."""
    return isinstance(step, Operator) and _base_name(step.op) in OPERATORS_OF_THE_SAME_TENSOR


def _base_name(op: str) -> str:
    """Returns the name without namespace and overload: `view` of `aten.view.default`."""
    parts = op.split(".")
    return parts[1] if len(parts) == 3 else op


def _tensor_specs(value: Json) -> Iterator[dict[str, Any]]:
    """Yields the descriptions of all tensors in an input, in order."""
    if isinstance(value, dict):
        if isinstance(value.get("tensor"), dict):
            yield value["tensor"]
        else:
            for inner in value.values():
                yield from _tensor_specs(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _tensor_specs(inner)


def _dtype_of(kwargs: dict[str, Json], otherwise: str) -> str:
    requested = kwargs.get("dtype")
    return (
        str(requested["dtype"])
        if isinstance(requested, dict) and "dtype" in requested
        else otherwise
    )


def _filled(requested: Sequence[Any], shape: Sequence[int]) -> tuple[Any, ...]:
    """Returns the requested shape with its -1 computed."""
    if any(type(n) is not int for n in requested):
        return tuple(requested)
    fixed_elements = math.prod(n for n in requested if n != -1)
    return tuple(
        math.prod(shape) // fixed_elements if n == -1 and fixed_elements else n for n in requested
    )


def _moved(name: str, shape: tuple[int, ...], args: Sequence[Json]) -> tuple[int, ...] | None:
    """Returns the shape after a view that moves, adds or drops dimensions; None for any other
    operator, or for invalid arguments.
    """
    numbers = [a for a in args[1:] if type(a) is int]
    try:
        if name == "t":
            return shape[::-1]
        if name == "transpose":
            a, b = (_axis(n, len(shape)) for n in numbers[:2])
            return tuple(shape[{a: b, b: a}.get(k, k)] for k in range(len(shape)))
        if name == "permute" and isinstance(args[1], list):
            return tuple(shape[k] for k in args[1])
        if name == "unsqueeze":
            axis = _axis(numbers[0], len(shape) + 1)
            return (*shape[:axis], 1, *shape[axis:])
        if name == "squeeze" and numbers and shape[numbers[0]] == 1:
            return _without(shape, numbers[0])
        if name == "select":
            return _without(shape, numbers[0])
    except (IndexError, ValueError, TypeError):
        return None
    return None


def _axis(number: int, rank: int) -> int:
    """Returns the axis, counted from 0. Raises IndexError if there is no such dimension."""
    return range(rank)[number]


def _without(shape: tuple[int, ...], number: int) -> tuple[int, ...]:
    axis = _axis(number, len(shape))
    return shape[:axis] + shape[axis + 1 :]
