"""Runs a reference in float32 arithmetic with random rounding, emulated in float64 (Jézéquel and
Chesneaux, "CADNA: a library for estimating round-off error propagation", 2008).

Perturbed inputs do not show intermediate losses if a problem is constant: x / |x| is 1 for every x,
yet a kernel that multiplies by an approximate reciprocal square root yields 0.99999994. So every
arithmetic operator reads its operands with an error of up to half a float32 ulp, different at each
use: a fused multiply-add rounds a product at one use and not at another. Operators with several
roundings (norms, softmax, losses) are split by torch's own decompositions. Results beyond float32's
range are infinite. Operators that select, compare or move read exact operands.

Example: `wg - wg.mean(-1)` with a single column is 0 in any precision. Here the subtraction reads
`wg * (1 + d)` and `wg * (1 + e)`, and `(d - e) * wg` remains, as in a kernel with fused operators.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.tools.comparing.exactness.kind_tracker import (
    CONVERTING_OPERATORS,
    WIDEST_TYPES,
    may_round,
)
from kernelwright.tools.expected.exactness.usual_forms import finite_form
from kernelwright.tools.expected.prepared_problem import ExpectedOutputs, PreparedProblem, run_on
from kernelwright.tools.nested import tensors_of_model
from kernelwright.tools.numerics.tolerance import FP32_EPS
from kernelwright.tools.operators.dispatch import without_dynamo
from kernelwright.tools.references.models.float64 import inputs_in_float64, model_in_float64

if TYPE_CHECKING:
    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types


UNIT_ROUNDOFF = FP32_EPS / 2
"""The largest relative error of rounding to nearest in float32."""
RANDOM_RUNS = 3
"""Runs with random roundings, beside the two in which all roundings go one way."""
LARGEST_FLOAT32 = float(torch.finfo(torch.float32).max)
MIN_ROUNDED_BYTES = 4
"""Bytes of the types that are read off by noise: of sixteen bits the last place is no rounding of float32."""
_COMPOUND_CORE_OPERATORS = """
    _log_softmax _softmax addbmm addmm addmv baddbmm gelu linalg_vector_norm mean native_batch_norm native_group_norm
    native_layer_norm _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training std_mean var var_mean
"""
"""Operators of several roundings that torch counts among its core operators, so that `core_aten_decompositions` leaves
them whole.
"""


_COMPARING = """
    eq ne lt le gt ge isclose isfinite isinf isnan isneginf isposinf signbit argmax argmin
"""
COMPARING_OPERATORS = frozenset(_COMPARING.split())
"""Operators with whole or boolean results, which follow from the operands as they are."""


class Direction(Enum):
    """How operands are read: off at random, or every second one upwards and the others downwards."""

    RANDOM = auto()
    FIRST_UP = auto()
    FIRST_DOWN = auto()


@functools.cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Returns torch's Python form of each operator that consists of several roundings, by overload."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    compound = frozenset(_COMPOUND_CORE_OPERATORS.split())
    table = dict(core_aten_decompositions().items())
    table |= {
        func: form for func, form in decomposition_table.items() if _name_of(func) in compound
    }
    return {func: form for func, form in table.items() if _may_be_taken_apart(func)}


def _may_be_taken_apart(func: OpOverload) -> bool:
    if (
        not isinstance(func, torch._ops.OpOverload)
        or torch.Tag.nondeterministic_seeded in func.tags
    ):
        return False
    writes_in_place = _name_of(func).endswith("_") or "out" in func._overloadname
    return not writes_in_place and may_round(func, ())


def _name_of(func: object) -> str:
    return str(func.overloadpacket.__name__) if isinstance(func, torch._ops.OpOverload) else ""


@without_dynamo
class RandomRounding(TorchDispatchMode):
    """Lets arithmetic operators read their operands off by up to half a unit in the last place of float32."""

    def __init__(self, seed: int, direction: Direction, *, in_usual_forms: bool = True) -> None:
        """in_usual_forms: whether functions are worked out as kernels write them, by exp and log."""
        super().__init__()
        self._seed = seed
        self._direction = direction
        self._in_usual_forms = in_usual_forms
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(
        self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
    ) -> Any:
        named = kwargs or {}
        form = finite_form(func, args, named) if self._in_usual_forms else None
        form = form or _decompositions().get(func)
        if form is not None:
            with self:
                return form(*args, **named)
        if not _computes(func, args):
            return func(*args, **named)
        operand_numbers = itertools.count()
        written = _written_arguments(func)
        moved = [
            self._moved_where_it_lies(a, operand_numbers)
            if position in written
            else self._moved(a, operand_numbers)
            for position, a in enumerate(args)
        ]
        named = {
            name: v if name in written else self._moved(v, operand_numbers)
            for name, v in named.items()
        }
        result = func(*moved, **named)
        del moved, named  # they are as large as the operands
        return result if written else _within_range(result)

    def _moved(self, value: object, operand_numbers: Iterator[int]) -> Any:
        """Returns the tensors of an argument with noise. operand_numbers: numbers the operands."""
        if isinstance(value, list | tuple):
            return type(value)(self._moved(part, operand_numbers) for part in value)
        if not isinstance(value, torch.Tensor) or not (
            value.is_floating_point() or value.is_complex()
        ):
            return value
        if value.dtype.to_real().itemsize < MIN_ROUNDED_BYTES or not value.numel():
            return value
        return self._factors(value, next(operand_numbers)) * value

    def _moved_where_it_lies(self, value: object, operand_numbers: Iterator[int]) -> Any:
        """Returns an argument that an operator reads and writes (`m.mul_(0.9)`), modified by noise
        in place."""
        moved = self._moved(value, operand_numbers)
        if isinstance(value, torch.Tensor) and moved is not value:
            value.copy_(moved)
        return value

    def _factors(self, value: torch.Tensor, operand_number: int) -> torch.Tensor | float:
        if self._direction is not Direction.RANDOM:
            is_up = (operand_number % 2 == 0) == (self._direction is Direction.FIRST_UP)
            return 1 + UNIT_ROUNDOFF if is_up else 1 - UNIT_ROUNDOFF
        if value.device not in self._generators:
            self._generators[value.device] = torch.Generator(value.device).manual_seed(self._seed)
        generator = self._generators[value.device]
        noise = torch.rand(
            value.shape, generator=generator, device=value.device, dtype=value.dtype.to_real()
        )
        return noise.mul_(2 * UNIT_ROUNDOFF).add_(1 - UNIT_ROUNDOFF)


def _computes(func: OpOverload, args: Sequence[Any]) -> bool:
    """Returns True if an operator computes floating numbers from its operands."""
    is_conversion = _name_of(func) in CONVERTING_OPERATORS
    is_drawn = torch.Tag.nondeterministic_seeded in func.tags
    returns_numbers = any("Tensor" in str(result.type) for result in func._schema.returns)
    selects = _name_of(func) in COMPARING_OPERATORS
    return returns_numbers and not (is_conversion or is_drawn or selects) and may_round(func, args)


@functools.cache
def _written_arguments(func: OpOverload) -> frozenset[int | str]:
    """Returns the positions and names of the arguments that an operator writes."""
    arguments = enumerate(func._schema.arguments)
    written = [
        (position, a.name)
        for position, a in arguments
        if a.alias_info is not None and a.alias_info.is_write
    ]
    return frozenset(key for pair in written for key in pair)


def _within_range(result: object) -> Any:
    """Returns float64 results with those beyond float32's range made infinite."""
    if isinstance(result, list | tuple):
        return type(result)(_within_range(part) for part in result)
    if not isinstance(result, torch.Tensor) or result.dtype != torch.float64:
        return result
    beyond = result.abs() > LARGEST_FLOAT32
    return torch.where(beyond, result * torch.inf, result) if bool(beyond.any()) else result


def outputs_rounded_at_random(
    prepared: PreparedProblem, expected: ExpectedOutputs, *, in_usual_forms: bool = True
) -> Iterator[list[Any]]:
    """Yields the reference's outputs with other roundings, in float64: twice with all roundings in
    one direction, then random.

    Yields nothing for problems in float64, whose roundings are finer. in_usual_forms: as for
    RandomRounding. Raises ProblemError if the reference cannot be run so.
    """
    weights = [] if expected.weights is None else tensors_of_model(expected.weights)
    tensors = [
        v for v in (*expected.inputs, *expected.eager, *weights) if isinstance(v, torch.Tensor)
    ]
    if expected.exact is None or any(t.dtype in WIDEST_TYPES for t in tensors):
        return
    for number, direction in enumerate(
        [Direction.FIRST_UP, Direction.FIRST_DOWN, *[Direction.RANDOM] * RANDOM_RUNS]
    ):
        rounding = RandomRounding(expected.rng + number, direction, in_usual_forms=in_usual_forms)
        yield _run_rounded(prepared, expected, rounding)


def _run_rounded(
    prepared: PreparedProblem, expected: ExpectedOutputs, rounding: RandomRounding
) -> list[Any]:
    model, inputs = model_in_float64(expected.weights), inputs_in_float64(expected.inputs)
    with rounding:
        return run_on(prepared, expected, model, inputs)
