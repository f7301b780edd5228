"""What a kernel's text reaches for beside Triton: under the interpreter a kernel is plain Python, and could let numpy work behind a branch that is never compiled."""

from __future__ import annotations

import builtins
import dis
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

_MODULES = frozenset({"triton", "math"})
_BUILTINS = frozenset({
    "abs", "bool", "float", "hasattr", "int", "isinstance", "len", "list", "max", "min", "print", "range", "reversed", "str", "tuple", "zip",
})  # fmt: skip
_PLAIN = (int, float, bool, str, bytes, type(None), tuple, list, dict)
_INNER = frozenset({"handle", "fn", "rewrite", "rewriter", "run", "builder"})
"""Attributes of the interpreter's own objects: numpy arrays and plain functions lie behind them."""
_INTERPRETERS = frozenset({"TritonSemantic", "InterpreterBuilder", "InterpreterSemantic"})
_REWRITTEN = frozenset({"interpreter_semantic", "_InterpreterComparison"})
"""What the interpreter's rewriting puts in (triton/runtime/interpreter.py, ASTTransformer)."""
_CALLED: tuple[type, ...] = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS"})
_NOTHING = object()


def foreign_names(function: Callable[..., Any], *, rewritten: bool = False) -> list[str]:
    """Names in the bytecode of a kernel that are neither Triton's, nor the kernel's own, nor plain constants.

    rewritten: the interpreter's version of it, which the interpreter may have read from a file that changed meanwhile.
    """
    allowed = _REWRITTEN if rewritten else frozenset()
    return sorted({n for code in _codes(function.__code__) for n in _foreign(code, function) if n not in allowed})


def foreign_arguments(arguments: Any) -> list[str]:
    """Arguments of a launch that are plain Python functions or modules."""
    return [str(type(a).__name__) for a in arguments if isinstance(a, _CALLED)]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


@functools.lru_cache(maxsize=256)
def _steps(code: types.CodeType) -> tuple[tuple[str, str], ...]:
    """Its instructions, as far as names go: load, attr or import with a name, and other. The same at every launch."""
    kinds = (
        dict.fromkeys(_LOADS, "load") | dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD"), "attr") | {"IMPORT_NAME": "import"}
    )
    steps = (s for s in dis.get_instructions(code) if s.opname not in ("PUSH_NULL", "CACHE", "EXTENDED_ARG"))
    return tuple((kinds.get(s.opname, "other"), str(s.argval) if s.opname in kinds else "") for s in steps)


def _foreign(code: types.CodeType, function: Callable[..., Any]) -> Iterator[str]:
    value, path = _NOTHING, ""
    for kind, name in _steps(code):
        if kind == "load":
            path = name
            value = _resolve(path, function)
        elif kind == "attr":
            if name in _INNER or (name.startswith("__") and name.endswith("__")):
                yield f".{name}"
            path = f"{path}.{name}"
            value = getattr(value, name, _NOTHING) if isinstance(value, types.ModuleType) else _NOTHING
        elif kind == "import":
            yield f"import {name}"
        else:
            value = _NOTHING
            continue
        if value is not _NOTHING and not _belongs(value):
            yield path
            value = _NOTHING


def _resolve(name: str, function: Callable[..., Any]) -> Any:
    code = function.__code__
    if name in code.co_freevars and function.__closure__:
        try:
            return function.__closure__[code.co_freevars.index(name)].cell_contents
        except ValueError:
            return _NOTHING
    if name in function.__globals__:
        return function.__globals__[name]
    return getattr(builtins, name, _NOTHING)


def _belongs(value: Any) -> bool:
    """Whether a kernel may name this: Triton's, a constant, a namedtuple, an exception, or a builtin that Triton knows."""
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] in _MODULES
    if isinstance(value, types.FunctionType):
        return _written_in_triton(value) or _is_lent(value)
    if isinstance(value, type):
        named = issubclass(value, tuple) and hasattr(value, "_fields")
        return value in _known or named or issubclass(value, BaseException) or _known_builtin(value)
    if isinstance(value, types.BuiltinFunctionType):
        return _known_builtin(value) or value.__module__ == "math"
    return type(value) in _PLAIN or (type(value) in _known and type(value).__name__ not in _INTERPRETERS)


def _written_in_triton(function: types.FunctionType) -> bool:
    """Not what the function says of itself: where its code was compiled and whose globals it sees."""
    inside = function.__globals__.get("__name__", "").partition(".")[0] in _MODULES
    return inside and "/triton/" in function.__code__.co_filename


def _known_builtin(value: Any) -> bool:
    name = str(getattr(value, "__name__", ""))
    return name in _BUILTINS and getattr(builtins, name, None) is value


_known: set[type] = set()
_lent: dict[int, tuple[Any, ...]] = {}


def lend(function: Callable[..., Any]) -> None:
    """Our own stand-in for a function of Triton's, which kernels may name for as long as it is as it was."""
    _lent[id(function)] = _inside(function)


def _is_lent(function: Callable[..., Any]) -> bool:
    known, now = _lent.get(id(function), ()), _inside(function)
    return len(known) == len(now) and all(a is b for a, b in zip(known, now, strict=True))


def _inside(function: Any) -> tuple[Any, ...]:
    cells = [c.cell_contents for c in function.__closure__ or ()]
    return (function, function.__code__, function.__defaults__, function.__kwdefaults__, *cells)


def remember() -> None:
    """Triton's own classes, as they are before a candidate comes."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "triton":
            _known.update(v for v in vars(module).values() if isinstance(v, type))
