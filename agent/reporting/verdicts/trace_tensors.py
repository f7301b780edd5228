"""What the tensors of a trace are called, and what is known of their shapes without running anything: inputs,
weights, allocations, views.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kernelwright.tools.trace.trace import Data, Json, Operator, Trace, tensors_in

OPERATORS_OF_THE_SAME_TENSOR = frozenset({"detach", "alias", "lift_fresh"})
"""Operators whose result is their argument by another number: both are called the same."""
OPERATORS_OF_EQUAL_SHAPE = frozenset(
    {"clone", "contiguous", "copy_", "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like",
    "fill_", "zero_", "_to_copy"}
)  # fmt: skip
"""The result has the shape of the first argument."""
OPERATORS_WITH_SHAPE_FIRST = frozenset(
    {"empty", "zeros", "ones", "full", "rand", "randn", "empty_strided", "empty_permuted"}
)
"""The first argument is the shape."""
OPERATORS_WITH_SHAPE_SECOND = frozenset(
    {"new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided", "as_strided", "expand"}
)
"""The second argument is the shape, the dtype is the first one's."""
RESHAPING_OPERATORS = frozenset({"view", "_unsafe_view", "reshape", "_reshape_alias"})


class KnownTensor(NamedTuple):
    """The known properties of a tensor."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def text(self) -> str:
        """Formats a tensor: `float32[512, 4096]`."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Tensors:
    """Names and shapes of the tensors of one trace: `x0` the first input, `w:NAME` a weight or a buffer, `t7` any
    other. `learn` follows a step.
    """

    def __init__(self, trace: Trace, inputs: Json) -> None:
        """inputs: as `tools.references.input_spec.InputSpec.inputs` describes them."""
        self._names = {number: f"w:{name}" for name, number in trace.state.items()}
        self._known = {
            number: KnownTensor(tuple(trace.shapes[name]), trace.dtypes.get(name, ""))
            for name, number in trace.state.items()
            if name in trace.shapes
        }
        for given in (trace.inputs, trace.later_inputs):
            self._name_inputs(given, inputs)
        self._first_inputs = set(tensors_in(list(trace.inputs))) - set(
            tensors_in(list(trace.later_inputs))
        )

    def _name_inputs(self, given: Sequence[Json], inputs: Json) -> None:
        specs = inputs if isinstance(inputs, list) else []
        for place, value in enumerate(given):
            numbers = list(tensors_in(value))
            described = list(_tensor_specs(specs[place])) if place < len(specs) else []
            for k, number in enumerate(numbers):
                self._names[number] = f"x{place}" if len(numbers) == 1 else f"x{place}[{k}]"
                if len(described) == len(numbers):
                    self._known[number] = KnownTensor(
                        tuple(described[k]["shape"]), str(described[k]["dtype"])
                    )

    def later_calls_follow(self) -> None:
        """From here on an input of the first call is one that was kept: `x0 of the first call`."""
        for number in self._first_inputs:
            self._names[number] = f"{self._names[number]} of the first call"
        self._first_inputs = set()

    def name(self, number: int) -> str:
        """Returns the name of a tensor by its number."""
        return self._names.get(number, f"t{number}")

    def described(self, number: int) -> str:
        """Formats a tensor: `float32[512, 4096]`; empty where its form is not known."""
        return self._known[number].text if number in self._known else ""

    def learn(self, step: Operator | Data) -> None:
        """Learns the properties of the tensors that a step makes."""
        if isinstance(step, Data):
            self._known[step.t] = KnownTensor(tuple(step.shape), step.dtype)
            return
        made = list(tensors_in(step.out))
        if len(made) != 1:
            return
        used = list(tensors_in(step.args))
        if _base_name(step.op) in OPERATORS_OF_THE_SAME_TENSOR and used:
            self._names[made[0]] = self.name(used[0])
            known = self._known.get(used[0])
        else:
            known = self._result(step, self._known.get(used[0]) if used else None)
        if known is not None and all(type(n) is int for n in known.shape):
            self._known[made[0]] = known

    def _result(self, step: Operator, first: KnownTensor | None) -> KnownTensor | None:
        """Returns the tensor that an operator with one result gives, whose first tensor argument is `first`."""
        name, args = _base_name(step.op), step.args
        dtype = _dtype_of(step.kwargs, first.dtype if first else "float32")
        if name in OPERATORS_WITH_SHAPE_FIRST and args and isinstance(args[0], list):
            return KnownTensor(tuple(args[0]), _dtype_of(step.kwargs, "float32"))
        if first is None:
            return None
        if name in OPERATORS_OF_EQUAL_SHAPE:
            return KnownTensor(first.shape, dtype)
        if (
            name in OPERATORS_WITH_SHAPE_SECOND
            and len(args) > 1
            and isinstance(args[1], list)
            and -1 not in args[1]
        ):
            return KnownTensor(tuple(args[1]), dtype)
        if name in RESHAPING_OPERATORS and len(args) > 1 and isinstance(args[1], list):
            return KnownTensor(_filled(args[1], first.shape), dtype)
        shape = _moved(name, first.shape, args)
        return None if shape is None else KnownTensor(shape, dtype)


def is_same_tensor(step: object) -> bool:
    """Whether a step only gives its argument another number."""
    return isinstance(step, Operator) and _base_name(step.op) in OPERATORS_OF_THE_SAME_TENSOR


def _base_name(op: str) -> str:
    """Returns the name without namespace and overload: `view` of `aten.view.default`."""
    parts = op.split(".")
    return parts[1] if len(parts) == 3 else op


def _tensor_specs(value: Json) -> Iterator[dict[str, Any]]:
    """The descriptions of all tensors in one input, in order."""
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
    asked = kwargs.get("dtype")
    return str(asked["dtype"]) if isinstance(asked, dict) and "dtype" in asked else otherwise


def _filled(asked: Sequence[Any], shape: Sequence[int]) -> tuple[Any, ...]:
    """A shape whose -1 is computed."""
    if any(type(n) is not int for n in asked):
        return tuple(asked)
    rest = math.prod(n for n in asked if n != -1)
    return tuple(math.prod(shape) // rest if n == -1 and rest else n for n in asked)


def _moved(name: str, shape: tuple[int, ...], args: Sequence[Json]) -> tuple[int, ...] | None:
    """The shape after a view that moves, adds or drops dimensions; None for any other operator, and where the
    arguments make no sense.
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
            place = _axis(numbers[0], len(shape) + 1)
            return (*shape[:place], 1, *shape[place:])
        if name == "squeeze" and numbers and shape[numbers[0]] == 1:
            return _without(shape, numbers[0])
        if name == "select":
            return _without(shape, numbers[0])
    except (IndexError, ValueError, TypeError):
        return None
    return None


def _axis(number: int, rank: int) -> int:
    """Returns the axis, counted from 0. Raises IndexError where there is no such dimension."""
    return range(rank)[number]


def _without(shape: tuple[int, ...], number: int) -> tuple[int, ...]:
    place = _axis(number, len(shape))
    return shape[:place] + shape[place + 1 :]
