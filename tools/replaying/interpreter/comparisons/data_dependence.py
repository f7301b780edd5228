"""Which values of an interpreted kernel depend on loaded data, and the comparisons among them.

Each handle of the interpreter carries its origin: a constant, a value that follows from the arguments of the launch
alone, one that moves with the program, or data. The operations of the builder and the functions of the language that
look into tensors hand it on, and the masks of the loads that the lanes come from with it. Recorded programs are not
followed: their steps are, once, when they are recorded, and a step that compares data is recorded so that it notes its
outcomes.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from kernelwright.tools.replaying.interpreter.comparisons.constant_results import (
    MAX_CONSTANTS,
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

CONSTANT, ARGUMENT, MOVES, DATA = 0, 1, 2, 3
KERNEL_FILE, LIBRARY_FILE = "/candidate.py", "/triton/language/standard.py"
LOADS = ("create_load", "create_masked_load")
PLACES = ("create_get_program_id", "create_make_range")
ADDRESS_AS_NUMBER = "create_ptr_to_int"
"""Its result is data: no size and no argument decides it."""
OPERATORS = {
    "LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "EQ": "==", "NE": "!=",
    "min": "min", "max": "max", "clampf": "clamp", "and": "and", "or": "or",
    "fadd": "+", "fsub": "-", "fma": "+",
}  # fmt: skip
REARRANGING = frozenset(
    {"trans", "gather", "dot", "dot_scaled", "histogram", "cat", "join", "split"}
)
"""Operations whose lanes are not those of their operands."""
KEEPING_VALUES = frozenset({
    "expand_dims", "broadcast", "splat", "unsplat", "reshape", "trans", "bitcast", "fp_ext", "addptr",
    "int_to_ptr",
})  # fmt: skip
"""Operations whose result takes as many values as their last operand that is data."""
COMBINING = ("reduce", "associative_scan", "map_elementwise")
"""Functions of the language that call functions of the kernel's own."""
MAX_MASKS = 3


def operator_of(name: str) -> str:
    """Returns the operator that an operation of the builder stands for: `<` for `create_fcmpOLT`; empty for none."""
    bare = name.removeprefix("create_")
    if bare.startswith(("fcmp", "icmp")):
        return OPERATORS[bare[-2:]]
    return (
        OPERATORS.get(bare[:3], "") if bare.startswith(("min", "max")) else OPERATORS.get(bare, "")
    )


# ---------------------------------------------------------------------- origins
_within: list[Sites] = []
"""Where the language calls a function of the kernel's own on data: the places that it is called from."""


def origin_of(value: Any) -> int:
    """Returns where a handle or a tensor has its values from."""
    return (
        int(vars(getattr(value, "handle", value)).get("origin", CONSTANT))
        if hasattr(value, "__dict__")
        else 0
    )


def masks_of(handle: Any) -> tuple[Any, ...]:
    """Returns handles of the masks of the loads that the lanes of a handle come from."""
    found: tuple[Any, ...] = vars(handle).get("masks", ())
    return found


def mark_arguments(values: Iterable[Any]) -> None:
    """Notes that values are arguments of a launch."""
    for value in values:
        if (handle := getattr(value, "handle", None)) is not None:
            handle.origin = ARGUMENT


def install() -> None:
    """Has the builder's operations hand origins on. After its other changes; once in a process."""
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
    """A function that makes tensors; they are data where the language calls a function of the kernel's own on data."""

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
        made: Any = function(self, *arguments, **named)
        if name == "create_assume":
            for comparison, _, _ in arguments[0].__dict__.get("comparisons", ()):
                comparison.is_assumed = True
        origin = DATA if is_data else CONSTANT
        if origin < DATA:
            for argument in arguments:
                if type(argument) is handle and argument.__dict__.get("origin", CONSTANT) > origin:
                    origin = argument.__dict__["origin"]
            if name in PLACES:
                origin = MOVES
            if origin == CONSTANT:
                return made
        if type(made) is handle:
            made.__dict__["origin"] = origin
            if origin == DATA:
                _keep_masks(name, made, arguments, handle)
                _observe(name, made, arguments, handle)
                if operator:
                    _note_comparison(name, arguments, made)
            elif made.__dict__["data"].size == 1 and not made.dtype.is_ptr():
                _observe(name, made, arguments, handle)
                if operator and origin == ARGUMENT:
                    _note_comparison(name, arguments, made)
        elif isinstance(made, tuple | list):
            for part in made:
                part.__dict__["origin"] = origin
        return made

    operation.__name__ = name
    return operation


def _note_comparison(name: str, arguments: Sequence[Any], made: Any) -> None:
    if comparisons := comparisons_of(name, arguments, made):
        made.__dict__["comparisons"] = comparisons.comparisons
        operands = [a.__dict__["data"] for a in arguments if type(a) is type(made)]
        masks = [mask.__dict__["data"] for mask in comparisons.masks]
        comparisons.note(operands, made.__dict__["data"], masks)


def _keep_masks(name: str, made: Any, arguments: Sequence[Any], handle: type) -> None:
    shape = made.__dict__["data"].shape
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
        made.masks = tuple(fitting.values())[:MAX_MASKS]


# ---------------------------------------------------------------------- results
def result_of(value: Any) -> ObservedResult | None:
    """Returns what is noted of the values of a handle or a tensor; None where nothing is."""
    result: ObservedResult | None = vars(getattr(value, "handle", value)).get("result")
    return result


def _observe(name: str, made: Any, operands: Sequence[Any], handle: type) -> None:
    """Notes the values that an operation on data, or on single numbers that follow from the arguments, gave."""
    bare = name.removeprefix("create_")
    operands = _operands_that_vary_it(bare, operands)
    results = [
        operand.__dict__["result"]
        for operand in operands
        if type(operand) is handle and operand.__dict__.get("result") is not None
    ]
    if bare in KEEPING_VALUES:
        made.__dict__["result"] = results[-1] if results else None
        return
    if (sites := _sites(library=True)) is None:
        return
    kind = ResultKind.DATA if made.__dict__["origin"] == DATA else ResultKind.EXTENT
    if operator_of(name) and made.__dict__["data"].dtype == np.bool_:
        kind = ResultKind.TRUTH
    result = observation.at(sites, bare, kind)
    if result is not None:
        made.__dict__["result"] = result
        result.operands.update(results)
        if name == ADDRESS_AS_NUMBER:  # another call may have another address
            result.varied = result.varied_when_recorded = True
        if not result.varied:
            _note_constants(result, operands, handle)
            result.note(
                made.__dict__["data"], lanes_alive(m.__dict__["data"] for m in masks_of(made))
            )


def _note_constants(result: ObservedResult, operands: Sequence[Any], handle: type) -> None:
    """Notes the whole numbers of the text among the operands."""
    for operand in operands:
        if (
            type(operand) is not handle
            or origin_of(operand) != CONSTANT
            or len(result.constants) >= MAX_CONSTANTS
        ):
            continue
        values = operand.__dict__["data"]
        if values.dtype.kind in "iu" and values.size and bool((values == values.flat[0]).all()):
            result.constants.add(float(values.flat[0]))


def _operands_that_vary_it(bare: str, operands: Sequence[Any]) -> Sequence[Any]:
    """Returns the operands whose values should show in the result: of a load the address; none of an atomic operation,
    whose result is what the memory held, nor of a remainder by an extent, which may be one.
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
    """What one operation compares."""

    comparisons: tuple[tuple[Comparison, int, int], ...]
    """Each with the places of its two operands among those of the operation, the one that is data first."""
    masks: tuple[Any, ...]
    widened: tuple[Callable[[Any], Any], ...]
    """For each operand, a function that gives its numbers from the array that holds them."""
    multiplies: bool = False
    """Whether the first two of three operands are multiplied, and their product is compared with the third."""

    def note(self, operands: Sequence[Any], made: Any, masks: Sequence[Any]) -> None:
        """Notes one evaluation."""
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
                comparison.note(values[data], values[other], made, live)


def comparisons_of(name: str, arguments: Sequence[Any], made: Any) -> Compared | None:
    """What an operation of the builder compares, where an operand is data or where all follow from the arguments of the
    launch; None where that is nothing.
    """
    operator, handle = operator_of(name), type(made)
    handles = [a for a in arguments if type(a) is handle]
    if not operator or len(handles) < 2 or handles[0] is handles[1]:
        return None
    origin = made.__dict__.get("origin", CONSTANT)
    decides = made.__dict__["data"].size == 1 and operator not in (*SUMS, *BOTH_WAYS, "clamp")
    if origin != DATA and not (origin == ARGUMENT and decides):
        return None
    if operator in LOGICAL and made.__dict__["data"].dtype != np.bool_:
        return None
    widened = tuple(widen for widen in map(_widening, handles) if widen is not None)
    if len(widened) < len(handles) or (sites := _sites()) is None:
        return None
    dtype = str(handles[0].dtype.scalar.name)
    if operator in SUMS:
        return _summed(operator, dtype, handles, sites, masks_of(made), widened)
    if origin == ARGUMENT:
        sites = at_columns(sites)
    first = 0 if origin_of(handles[0]) == origin else 1
    pairs = [(operator, first, 1 - first)]
    if operator == "clamp":
        pairs = [("max", 0, 1), ("min", 0, 2)]
    found = []
    for text, data, other in pairs:
        value = _single_number(handles[other], widened[other]) if text not in LOGICAL else None
        is_constant = origin == DATA and origin_of(handles[other]) == CONSTANT
        comparison = outcomes.at(
            sites, text, dtype, value, told_apart=is_constant, of_arguments=origin == ARGUMENT
        )
        if comparison is not None:
            found.append((comparison, data, other))
    return Compared(tuple(found), masks_of(made), widened) if found else None


def _summed(
    operator: str, dtype: str, handles: Sequence[Any], sites: Sites, masks: tuple[Any, ...],
    widened: tuple[Callable[[Any], Any], ...],
) -> Compared | None:  # fmt: skip
    """What a sum compares: the sizes of its operands. Of `a * b + c` they are the product and c."""
    is_data = [origin_of(handle) == DATA for handle in handles]
    multiplies = len(handles) > 2
    operands = {0: is_data[0], 1: is_data[1]}
    if multiplies:
        operands = {len(handles): is_data[0] or is_data[1], 2: is_data[2]}
    data, other = sorted(operands, key=lambda place: not operands[place])
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
    """A function that gives the numbers of an array of this handle's type; None for addresses and eight-bit floats."""
    from kernelwright.tools.replaying.interpreter.number_formats.bfloat16 import widen

    name = getattr(handle.dtype.scalar, "name", "")
    if handle.dtype.is_ptr() or name.startswith("fp8"):
        return None
    return widen if name == "bf16" and handle.__dict__["data"].dtype != np.bool_ else _unchanged


def _unchanged(values: Any) -> Any:
    return values


def _sites(library: bool = False) -> Sites | None:
    """The places of the kernel's text that are being executed; None in a function of Triton's own library, unless
    `library`, where its caller counts.
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
"""The code of each place that was executed."""


def at_columns(sites: Sites) -> Sites:
    """Returns places with the column of the text for the position of the instruction: Python compiles the condition of
    a `while` twice, and its entry alone is never false.
    """
    return tuple(
        (file, line, _column(_codes.get((file, line, at)), at)) for file, line, at in sites
    )


def _column(code: CodeType | None, position: int) -> int:
    positions = itertools.islice(code.co_positions(), position // 2, None) if code else iter(())
    return next(positions, (None, None, None, None))[2] or 0


# ---------------------------------------------------------------------- functions of the language
def carrying_origins(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of the language, which looks into tensors; its results have the origin of what it is given."""

    def operation(*arguments: Any, **named: Any) -> Any:
        given = (*arguments, *named.values())
        flat = [
            one
            for value in given
            for one in (value if isinstance(value, tuple | list) else (value,))
        ]
        origin = max(map(origin_of, flat), default=CONSTANT)
        if origin < DATA or name not in COMBINING:
            made = function(*arguments, **named)
        else:
            made = call_on_data(sites_of_caller(), lambda: function(*arguments, **named))
        for one in made if isinstance(made, tuple | list) else (made,):
            if origin and (handle := getattr(one, "handle", None)) is not None:
                handle.origin = origin
                if origin == DATA and not isinstance(made, tuple | list):
                    _observe(
                        name,
                        handle,
                        [getattr(value, "handle", None) for value in flat],
                        type(handle),
                    )
        return made

    return operation


def call_on_data(sites: Sites, run: Callable[[], Any]) -> Any:
    """Runs a function of the language that calls one of the kernel's own, whose arguments then are data."""
    _within.append(sites)
    try:
        return run()
    finally:
        _within.pop()


def sites_of_caller() -> Sites:
    """The places of the kernel's text that are being executed, also inside of Triton's own library."""
    return _sites(library=True) or ()
