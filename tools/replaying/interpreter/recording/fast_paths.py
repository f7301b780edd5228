"""Finds fast paths for recorded operations: NumPy for a single program, vectorised over programs
for a batch.

A fast path is looked up once per form of operation (name, dtypes, shapes), and accepted only if its
result equals the interpreter's, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kernelwright.tools.replaying.interpreter.recording import whole_batches
from kernelwright.tools.replaying.interpreter.recording.batched_combinations import (
    LAST_PARAMETERS,
    parse_combination,
    tensors_of,
    together,
)
from kernelwright.tools.replaying.interpreter.recording.language import array, language
from kernelwright.tools.replaying.interpreter.recording.operations import (
    ACCESSES,
    PURE,
    Arrays,
    quick_access,
    quick_reduction,
)
from kernelwright.tools.replaying.interpreter.recording.whole_batches import Batched

MAX_FORMS = 10_000


class FastPaths(NamedTuple):
    """Fast paths of an operation, as functions of its handles' arrays; None if there is none."""

    alone: Arrays | None = None
    together: Batched | None = None


class RecordedCall(NamedTuple):
    """A call of an operation, with its result."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    result: Any
    """Result of the operation."""


_NONE = FastPaths()
_paths_by_form: dict[Any, FastPaths] = {}
"""Form of an operation -> fast paths."""


def handles_of(call: RecordedCall) -> list[Any]:
    """Returns the handles that come first in the arguments; empty if they are passed in any other
    way."""
    lang, arguments = language(), call.arguments
    if call.name in LAST_PARAMETERS:
        return [tensor.handle for tensor in tensors_of(arguments[0], lang)] if arguments else []
    handles: list[Any] = []
    for position, argument in enumerate(() if call.named else arguments):
        if isinstance(argument, lang.handle):
            if position != len(handles):
                return []
            handles.append(argument)
    return handles


def fast_paths_of(call: RecordedCall, handles: Sequence[Any], moves: Sequence[bool]) -> FastPaths:
    """Returns fast paths for an operation on these handles. moves: the operands that may differ
    between programs."""
    if not handles:
        return _NONE
    find: Callable[[RecordedCall, Sequence[Any], Sequence[bool]], FastPaths] = _of_pure
    variant: Any
    if call.name in LAST_PARAMETERS:
        combination = parse_combination(call.name, call.arguments, call.named)
        if combination is None:
            return _NONE
        find, variant = (
            _of_combination,
            (combination.axis, id(combination.combine), combination.last, type(call.arguments[0])),
        )
    elif call.name in ACCESSES:  # one handle or none at each place
        find, variant = (
            _of_access,
            str([a if isinstance(a, bool) else a is None for a in call.arguments]),
        )
    elif call.name in PURE and isinstance(call.result, language().handle):
        variant = str(call.arguments[len(handles) :])
    else:
        return _NONE
    form = (call.name, variant, *map(_form, handles, moves), _form_of_result(call.result))
    if (paths := _paths_by_form.get(form)) is None:
        if len(_paths_by_form) > MAX_FORMS:
            _paths_by_form.clear()
        paths = _paths_by_form[form] = find(call, handles, moves)
    return paths


def _form(handle: Any, moves: bool) -> tuple[Any, ...]:
    data = array(handle)
    return str(handle.dtype), data.dtype, data.shape, moves


def _form_of_result(result: Any) -> tuple[Any, ...]:
    if result is None:
        return ()
    lang = language()
    if type(result) in (list, tuple):
        return tuple(map(_form_of_result, result))
    if isinstance(result, lang.tensor):
        return (*_form(result.handle, False), result.type.is_block())
    return _form(result, False) if isinstance(result, lang.handle) else (type(result),)


def _of_pure(call: RecordedCall, handles: Sequence[Any], moves: Sequence[bool]) -> FastPaths:
    trailing = call.arguments[len(handles) :]
    alone = language().quick.of(call.name, handles, trailing, call.result)
    return FastPaths(
        alone,
        whole_batches.of_pure(
            call.name, call.function, handles, moves, trailing, call.result, alone
        ),
    )


def _of_access(call: RecordedCall, _: Sequence[Any], __: Sequence[bool]) -> FastPaths:
    np_dtype = language().np_dtype
    alone = quick_access(call.name, call.arguments, np_dtype)
    return FastPaths(
        alone, whole_batches.access(call.name, call.arguments, np_dtype) if alone else None
    )


def _of_combination(call: RecordedCall, _: Sequence[Any], moves: Sequence[bool]) -> FastPaths:
    lang, value = language(), call.arguments[0]
    plain = call.name == "reduce" and isinstance(value, lang.tensor)
    alone = quick_reduction(call.arguments, call.named, call.result, lang.tensor) if plain else None
    batched = (
        whole_batches.reduction(call.arguments, call.named, call.result, alone) if alone else None
    )
    combination = parse_combination(call.name, call.arguments, call.named)
    if batched is None and combination is not None:
        batched = together(call.name, call.function, value, combination, call.result, moves, lang)
    return FastPaths(alone, batched)
