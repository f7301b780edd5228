"""Tracks which values of an interpreted kernel depend on loaded data, and finds comparisons of such
values.

Each handle of the interpreter carries an origin: CONSTANT, ARGUMENT (follows from the launch's
arguments), MOVES (depends on the program's index) or DATA. Builder operations, and language
functions that read tensors, propagate the largest origin of their operands, together with the masks
of the loads. Example: in

    x = tl.load(p + tl.arange(0, 8))
    y = tl.where(x > limit, 0.0, x)

`tl.arange` is MOVES, x is DATA, `limit` is ARGUMENT; `>` compares DATA with ARGUMENT, so its
outcomes are recorded under the line of the `where`.

In recorded programs only the recording is tracked; a recorded step that compares data also records
outcomes in each replay.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from kernelwright.tools.replaying.interpreter.comparisons.constant_results import (
    MAX_REPORTED_NUMBERS,
    ObservedResult,
    ResultKind,
    lanes_alive,
    observation,
)
from kernelwright.tools.replaying.interpreter.comparisons.outcomes import (
    BOTH_WAYS,
    LOGICAL,
    SUMS,
    Comparison,
    Sites,
    outcomes,
)

CONSTANT = 0
ARGUMENT = 1
MOVES = 2
DATA = 3
KERNEL_FILE = "/candidate.py"
LIBRARY_FILE = "/triton/language/standard.py"
LOADS = ("create_load", "create_masked_load")
POSITION_OPERATIONS = ("create_get_program_id", "create_make_range")
ADDRESS_AS_NUMBER = "create_ptr_to_int"
"""Its result counts as data: neither sizes nor arguments determine an address."""
OPERATION_SIGNS = {
    "LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "EQ": "==", "NE": "!=",
    "min": "min", "max": "max", "clampf": "clamp", "and": "and", "or": "or",
    "fadd": "+", "fsub": "-", "fma": "+",
}  # fmt: skip
REARRANGING = frozenset(
    {"trans", "gather", "dot", "dot_scaled", "histogram", "cat", "join", "split"}
)
"""Operations whose lanes differ from those of their operands."""
KEEPING_VALUES = frozenset({
    "expand_dims", "broadcast", "splat", "unsplat", "reshape", "trans", "bitcast", "fp_ext", "addptr",
    "int_to_ptr",
})  # fmt: skip
"""Operations whose result takes as many values as their last data-dependent operand."""
COMBINING_OPERATIONS = ("reduce", "associative_scan", "map_elementwise")
"""Language functions that call functions defined in the kernel."""
MAX_MASKS = 3


def operator_of(name: str) -> str:
    """Returns the operator for a builder operation, as `<` for `create_fcmpOLT`; empty for other
    operations."""
    bare = name.removeprefix("create_")
    if bare.startswith(("fcmp", "icmp")):
        return OPERATION_SIGNS[bare[-2:]]
    return (
        OPERATION_SIGNS.get(bare[:3], "")
        if bare.startswith(("min", "max"))
        else OPERATION_SIGNS.get(bare, "")
    )


# ---------------------------------------------------------------------- origins
_within: list[Sites] = []
"""Stack of call sites at which the language called a function of the kernel on data."""


def origin_of(value: object) -> int:
    """Returns the origin of a handle's or tensor's values."""
    return (
        int(vars(getattr(value, "handle", value)).get("origin", CONSTANT))
        if hasattr(value, "__dict__")
        else 0
    )


def masks_of(handle: Any) -> tuple[Any, ...]:
    """Returns handles of the load masks that apply to the lanes of a handle."""
    masks: tuple[Any, ...] = vars(handle).get("masks", ())
    return masks


def mark_arguments(values: Iterable[Any]) -> None:
    """Marks values as arguments of a launch."""
    for value in values:
        if (handle := getattr(value, "handle", None)) is not None:
            handle.origin = ARGUMENT


def install() -> None:
    """Patches the builder to propagate origins. Call once per process, after its other patches."""
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    for name in dir(builder):
        if name.startswith("create_"):
            setattr(
                builder, name, _following(name, getattr(builder, name), interpreter.TensorHandle)
            )
    combining = interpreter.ReduceScanOpInterface
    combining.to_tensor = data_within(combining.to_tensor)


def data_within(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function that makes tensors: inside a call on data, they are marked as data."""

    def operation(*arguments: Any, **named: Any) -> Any:
        tensor = function(*arguments, **named)
        if _within:
            tensor.handle.origin = DATA
        return tensor

    return operation


def _following(name: str, function: Callable[..., Any], handle: Any) -> Callable[..., Any]:
    operator = operator_of(name)
    is_data = name in (*LOADS, ADDRESS_AS_NUMBER) or name.startswith("create_atomic")

    def operation(self: Any, *arguments: Any, **named: Any) -> Any:
        result: Any = function(self, *arguments, **named)
        if name == "create_assume":
            for comparison, _, _ in arguments[0].__dict__.get("comparisons", ()):
                comparison.is_assumed = True
        origin = DATA if is_data else CONSTANT
        if origin < DATA:
            for argument in arguments:
                if type(argument) is handle and argument.__dict__.get("origin", CONSTANT) > origin:
                    origin = argument.__dict__["origin"]
            if name in POSITION_OPERATIONS:
                origin = MOVES
            if origin == CONSTANT:
                return result
        if type(result) is handle:
            result.__dict__["origin"] = origin
            if origin == DATA:
                _keep_masks(name, result, arguments, handle)
                _observe(name, result, arguments, handle)
                if operator:
                    _note_comparison(name, arguments, result)
            elif result.__dict__["data"].size == 1 and not result.dtype.is_ptr():
                _observe(name, result, arguments, handle)
                if operator and origin == ARGUMENT:
                    _note_comparison(name, arguments, result)
        elif isinstance(result, tuple | list):
            for part in result:
                part.__dict__["origin"] = origin
        return result

    operation.__name__ = name
    return operation


def _note_comparison(name: str, arguments: Sequence[Any], result: object) -> None:
    if comparisons := comparisons_of(name, arguments, result):
        result.__dict__["comparisons"] = comparisons.comparisons
        operands = [a.__dict__["data"] for a in arguments if type(a) is type(result)]
        masks = [mask.__dict__["data"] for mask in comparisons.masks]
        comparisons.note(operands, result.__dict__["data"], masks)


def _keep_masks(name: str, result: Any, arguments: Sequence[Any], handle: type) -> None:
    shape = result.__dict__["data"].shape
    masks: list[Any] = []
    if name == "create_masked_load":
        masks = [arguments[1]]
    elif (
        name == "create_select"
        and origin_of(arguments[0]) < DATA
        and origin_of(arguments[2]) < DATA
    ):
        masks = [arguments[0], *masks_of(arguments[1])]
    elif name == "create_gather":
        masks = list(masks_of(arguments[1]))
    elif name.removeprefix("create_") not in REARRANGING:
        masks = [mask for a in arguments if type(a) is handle for mask in masks_of(a)]
    fitting = {id(m): m for m in masks if type(m) is handle and m.__dict__["data"].shape == shape}
    if fitting:
        result.masks = tuple(fitting.values())[:MAX_MASKS]


# ---------------------------------------------------------------------- results
def result_of(value: object) -> ObservedResult | None:
    """Returns the observed result behind a handle or tensor; None if unobserved."""
    result: ObservedResult | None = vars(getattr(value, "handle", value)).get("result")
    return result


def _observe(name: str, output: object, operands: Sequence[Any], handle: type) -> None:
    """Adds the values of an operation on data, or on single numbers that follow from the arguments."""
    bare = name.removeprefix("create_")
    operands = _operands_that_vary_it(bare, operands)
    results = [
        operand.__dict__["result"]
        for operand in operands
        if type(operand) is handle and operand.__dict__.get("result") is not None
    ]
    if bare in KEEPING_VALUES:
        output.__dict__["result"] = results[-1] if results else None
        return
    if (sites := _sites(library=True)) is None:
        return
    kind = ResultKind.DATA if output.__dict__["origin"] == DATA else ResultKind.EXTENT
    if operator_of(name) and output.__dict__["data"].dtype == np.bool_:
        kind = ResultKind.TRUTH
    result = observation.at(sites, bare, kind)
    if result is not None:
        output.__dict__["result"] = result
        result.operands.update(results)
        if name == ADDRESS_AS_NUMBER:  # another call may have another address
            result.is_address = result.varied = result.varied_when_recorded = True
        if not result.varied:
            _note_constants(result, operands, handle)
            result.note(
                output.__dict__["data"], lanes_alive(m.__dict__["data"] for m in masks_of(output))
            )


def _note_constants(result: ObservedResult, operands: Sequence[Any], handle: type) -> None:
    """Adds constant integer operands to the result."""
    for operand in operands:
        if (
            type(operand) is not handle
            or origin_of(operand) != CONSTANT
            or len(result.constants) >= MAX_REPORTED_NUMBERS
        ):
            continue
        values = operand.__dict__["data"]
        if values.dtype.kind in "iu" and values.size and bool((values == values.flat[0]).all()):
            result.constants.add(float(values.flat[0]))


def _operands_that_vary_it(bare: str, operands: Sequence[Any]) -> Sequence[Any]:
    """Returns operands whose variation should show in the result.

    For a load this is the address. An atomic operation has none, since its result is the memory's
    old content; nor has a remainder by an extent, which may be 1.
    """
    if bare in ("load", "masked_load"):
        return operands[:1]
    if bare.startswith("atomic") or (
        bare in ("srem", "urem") and origin_of(operands[1]) in (ARGUMENT, MOVES)
    ):
        return ()
    return operands


# ---------------------------------------------------------------------- comparisons
class Compared(NamedTuple):
    """The comparisons made by an operation."""

    comparisons: tuple[tuple[Comparison, int, int], ...]
    """Each comparison with the indices of its two operands, data first."""
    masks: tuple[Any, ...]
    widened: tuple[Callable[[Any], Any], ...]
    """For each operand, a function from the stored array to its numbers."""
    multiplies: bool = False
    """The first two of three operands are multiplied, and their product is compared with the third.
    """

    def note(self, operands: Sequence[Any], outcome: Any, masks: Sequence[Any]) -> None:
        """Records the outcomes of an evaluation."""
        if all(comparison.true and comparison.false for comparison, _, _ in self.comparisons):
            for comparison, _, _ in self.comparisons:
                comparison.evaluations += 1
            return
        live = lanes_alive(masks)
        with np.errstate(all="ignore"):
            values = [widen(operand) for widen, operand in zip(self.widened, operands, strict=True)]
            if self.multiplies:
                values.append(values[0] * values[1])
            for comparison, data, other in self.comparisons:
                comparison.note(values[data], values[other], outcome, live)


def comparisons_of(name: str, arguments: Sequence[Any], result: Any) -> Compared | None:
    """Returns the comparisons made by a builder operation on data, or on values that follow from
    the launch's arguments; None if there are none."""
    operator, handle = operator_of(name), type(result)
    handles = [a for a in arguments if type(a) is handle]
    if not operator or len(handles) < 2 or handles[0] is handles[1]:
        return None
    origin = result.__dict__.get("origin", CONSTANT)
    decides = result.__dict__["data"].size == 1 and operator not in (*SUMS, *BOTH_WAYS, "clamp")
    if origin != DATA and not (origin == ARGUMENT and decides):
        return None
    if operator in LOGICAL and result.__dict__["data"].dtype != np.bool_:
        return None
    widened = tuple(widen for widen in map(_widening, handles) if widen is not None)
    if len(widened) < len(handles) or (sites := _sites()) is None:
        return None
    dtype = str(handles[0].dtype.scalar.name)
    if operator in SUMS:
        return _summed(operator, dtype, handles, sites, masks_of(result), widened)
    if origin == ARGUMENT:
        sites = at_columns(sites)
    first = 0 if origin_of(handles[0]) == origin else 1
    pairs = [(operator, first, 1 - first)]
    if operator == "clamp":
        pairs = [("max", 0, 1), ("min", 0, 2)]
    comparisons = []
    for text, data, other in pairs:
        value = _single_number(handles[other], widened[other]) if text not in LOGICAL else None
        is_constant = origin == DATA and origin_of(handles[other]) == CONSTANT
        comparison = outcomes.at(
            sites, text, dtype, value, told_apart=is_constant, of_arguments=origin == ARGUMENT
        )
        if comparison is not None:
            comparisons.append((comparison, data, other))
    return Compared(tuple(comparisons), masks_of(result), widened) if comparisons else None


def _summed(
    operator: str, dtype: str, handles: Sequence[Any], sites: Sites, masks: tuple[Any, ...],
    widened: tuple[Callable[[Any], Any], ...],
) -> Compared | None:  # fmt: skip
    """Returns the comparison made by a sum: of its operands' magnitudes. In `a * b + c` they are
    the product and c."""
    is_data = [origin_of(handle) == DATA for handle in handles]
    multiplies = len(handles) > 2
    operands = {0: is_data[0], 1: is_data[1]}
    if multiplies:
        operands = {len(handles): is_data[0] or is_data[1], 2: is_data[2]}
    data, other = sorted(operands, key=lambda index: not operands[index])
    if not operands[other]:
        operator = f"{operator} constant"
    comparison = outcomes.at(sites, operator, dtype, None, told_apart=False)
    if comparison is None:
        return None
    return Compared(((comparison, data, other),), masks, widened, multiplies)


def _single_number(handle: Any, widen: Callable[[Any], Any]) -> float | None:
    values = handle.__dict__["data"]
    return float(widen(values).item()) if values.size == 1 and origin_of(handle) < DATA else None


def _widening(handle: Any) -> Callable[[Any], Any] | None:
    """Returns a function from an array of the handle's type to numbers; None for addresses and
    eight-bit floats."""
    from kernelwright.tools.replaying.interpreter.number_formats.bfloat16 import widen

    name = getattr(handle.dtype.scalar, "name", "")
    if handle.dtype.is_ptr() or name.startswith("fp8"):
        return None
    return widen if name == "bf16" and handle.__dict__["data"].dtype != np.bool_ else _unchanged


def _unchanged(values: Any) -> Any:
    return values


def _sites(library: bool = False) -> Sites | None:
    """Returns the source positions being executed, innermost first.

    None inside Triton's own library, unless `library` is set: then its caller's positions count.
    """
    frame, sites = sys._getframe(1), list[tuple[str, int, int]]()
    while frame is not None:
        code = frame.f_code
        if code is call_on_data.__code__:
            return (*sites, *_within[-1])
        if code.co_filename.endswith(KERNEL_FILE):
            sites.append((code.co_filename, frame.f_lineno, frame.f_lasti))
            _codes[code.co_filename, frame.f_lineno, frame.f_lasti] = code
        elif not sites and not library and code.co_filename.endswith(LIBRARY_FILE):
            return None
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(sites) or None


_codes: dict[tuple[str, int, int], CodeType] = {}
"""Source position -> code object executed there."""


def at_columns(sites: Sites) -> Sites:
    """Replaces instruction offsets by source columns.

    Python compiles the condition of a `while` loop twice, and the copy at the loop's entry is never
    false.
    """
    return tuple(
        (file, line, _column(_codes.get((file, line, at)), at)) for file, line, at in sites
    )


def _column(code: CodeType | None, position: int) -> int:
    positions = itertools.islice(code.co_positions(), position // 2, None) if code else iter(())
    return next(positions, (None, None, None, None))[2] or 0


# ---------------------------------------------------------------------- functions of the language
def carrying_origins(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a language function that reads tensors: its results get the largest origin of its
    arguments."""

    def operation(*arguments: Any, **named: Any) -> Any:
        values = (*arguments, *named.values())
        flat = [
            item
            for value in values
            for item in (value if isinstance(value, tuple | list) else (value,))
        ]
        origin = max(map(origin_of, flat), default=CONSTANT)
        if origin < DATA or name not in COMBINING_OPERATIONS:
            result = function(*arguments, **named)
        else:
            result = call_on_data(sites_of_caller(), lambda: function(*arguments, **named))
        for item in result if isinstance(result, tuple | list) else (result,):
            if origin and (handle := getattr(item, "handle", None)) is not None:
                handle.origin = origin
                if origin == DATA and not isinstance(result, tuple | list):
                    _observe(
                        name,
                        handle,
                        [getattr(value, "handle", None) for value in flat],
                        type(handle),
                    )
        return result

    return operation


def call_on_data(sites: Sites, run: Callable[[], Any]) -> Any:
    """Runs a language function that calls a function of the kernel, whose arguments then count as
    data."""
    _within.append(sites)
    try:
        return run()
    finally:
        _within.pop()


def sites_of_caller() -> Sites:
    """Returns the source positions being executed, also inside Triton's own library."""
    return _sites(library=True) or ()
