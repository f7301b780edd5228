"""The quicker ways to do an operation of a record, for one program and for many at once: found, and compared with the
interpreter's own answer, when an operation of that form is recorded first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kernelwright.tools.replaying.interpreter.recording import whole_batches
from kernelwright.tools.replaying.interpreter.recording.batched_combinations import (
    NAMES,
    asked_for,
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


class Ways(NamedTuple):
    """Functions of the arrays of an operation's handles; None where there is no such way."""

    alone: Arrays | None = None
    together: Batched | None = None


class Asked(NamedTuple):
    """An operation that was done."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    made: Any
    """Its result."""


_NONE = Ways()
_found: dict[Any, Ways] = {}
"""By the form of the operation."""


def handles_of(asked: Asked) -> list[Any]:
    """The handles that an operation is given before its other arguments; none where it is given them in another way."""
    lang, arguments = language(), asked.arguments
    if asked.name in NAMES:
        return [tensor.handle for tensor in tensors_of(arguments[0], lang)] if arguments else []
    handles: list[Any] = []
    for place, argument in enumerate(() if asked.named else arguments):
        if isinstance(argument, lang.handle):
            if place != len(handles):
                return []
            handles.append(argument)
    return handles


def ways_of(asked: Asked, handles: Sequence[Any], moves: Sequence[bool]) -> Ways:
    """The ways for an operation on these handles. moves: which of them may differ between programs."""
    if not handles:
        return _NONE
    find: Callable[[Asked, Sequence[Any], Sequence[bool]], Ways] = _of_pure
    rest: Any
    if asked.name in NAMES:
        wanted = asked_for(asked.name, asked.arguments, asked.named)
        if wanted is None:
            return _NONE
        find, rest = (
            _of_combination,
            (wanted.axis, id(wanted.combine), wanted.last, type(asked.arguments[0])),
        )
    elif asked.name in ACCESSES:  # one handle or none at each place
        find, rest = (
            _of_access,
            str([a if isinstance(a, bool) else a is None for a in asked.arguments]),
        )
    elif asked.name in PURE and isinstance(asked.made, language().handle):
        rest = str(asked.arguments[len(handles) :])
    else:
        return _NONE
    form = (asked.name, rest, *map(_form, handles, moves), _form_of_result(asked.made))
    if (found := _found.get(form)) is None:
        if len(_found) > MAX_FORMS:
            _found.clear()
        found = _found[form] = find(asked, handles, moves)
    return found


def _form(handle: Any, moves: bool) -> tuple[Any, ...]:
    data = array(handle)
    return str(handle.dtype), data.dtype, data.shape, moves


def _form_of_result(made: Any) -> tuple[Any, ...]:
    if made is None:
        return ()
    lang = language()
    if type(made) in (list, tuple):
        return tuple(map(_form_of_result, made))
    if isinstance(made, lang.tensor):
        return (*_form(made.handle, False), made.type.is_block())
    return _form(made, False) if isinstance(made, lang.handle) else (type(made),)


def _of_pure(asked: Asked, handles: Sequence[Any], moves: Sequence[bool]) -> Ways:
    rest = asked.arguments[len(handles) :]
    alone = language().quick.of(asked.name, handles, rest, asked.made)
    return Ways(
        alone,
        whole_batches.of_pure(asked.name, asked.function, handles, moves, rest, asked.made, alone),
    )


def _of_access(asked: Asked, _: Sequence[Any], __: Sequence[bool]) -> Ways:
    np_dtype = language().np_dtype
    alone = quick_access(asked.name, asked.arguments, np_dtype)
    return Ways(
        alone, whole_batches.access(asked.name, asked.arguments, np_dtype) if alone else None
    )


def _of_combination(asked: Asked, _: Sequence[Any], moves: Sequence[bool]) -> Ways:
    lang, value = language(), asked.arguments[0]
    plain = asked.name == "reduce" and isinstance(value, lang.tensor)
    alone = (
        quick_reduction(asked.arguments, asked.named, asked.made, lang.tensor) if plain else None
    )
    found = (
        whole_batches.reduction(asked.arguments, asked.named, asked.made, alone) if alone else None
    )
    wanted = asked_for(asked.name, asked.arguments, asked.named)
    if found is None and wanted is not None:
        found = together(asked.name, asked.function, value, wanted, asked.made, moves, lang)
    return Ways(alone, found)
