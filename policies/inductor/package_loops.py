"""Rewrites loops in functions of installed packages, as those of a problem's own text are (tracing/loop_syntax.py)."""

from __future__ import annotations

import ast
import inspect
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kernelwright.policies.inductor.tracing.loop_syntax import loop_names, rewrite_ranges


@contextmanager
def package_loops(model: object) -> Iterator[bool]:
    """Rewrites loops over ranges in the files that define a model's modules, but for torch's own, for its block.

    Gives whether there is such a loop.

    A recurrence of an installed package, such as a selective scan of transformers, is then a loop of the draft too.
    Functions keep their identity and get other code, so that decorated and imported ones are reached. A function that
    refers to variables of a surrounding function, or whose file cannot be read, stays as it is.
    """
    classes = {type(module) for module in getattr(model, "modules", lambda: ())()}
    names = {cls.__module__ for cls in classes} - {"problem"}
    codes: list[tuple[types.FunctionType, types.CodeType]] = []
    undone: list[tuple[types.FunctionType, types.CodeType]] = []
    for name in sorted(names):
        package = sys.modules.get(name)
        if package is not None and name.partition(".")[0] != "torch":
            codes += _rewritten_functions(package)
    for function, code in codes:
        function.__globals__.update(loop_names())
        code_before, function.__code__ = function.__code__, code
        undone.append((function, code_before))
    try:
        yield bool(codes)
    finally:
        for function, code in undone:
            function.__code__ = code


def _rewritten_functions(
    package: types.ModuleType,
) -> list[tuple[types.FunctionType, types.CodeType]]:
    """Returns the functions of a file that have loops over ranges, with their rewritten code."""
    try:
        text = inspect.getsource(package)
    except (OSError, TypeError):
        return []
    definitions = {
        (node.name, _first_line(node)): node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and any(isinstance(n, ast.For) for n in ast.walk(node))
    }
    rewritten = []
    for function in _functions_of(package):
        definition = definitions.get((function.__name__, function.__code__.co_firstlineno))
        if definition is None or function.__code__.co_freevars:
            continue
        definition.decorator_list = []
        rewrite_ranges(definition)
        if "__loop__" in ast.unparse(definition):
            rewritten.append((function, _code_of(definition, package.__file__ or "")))
    return rewritten


def _first_line(definition: ast.FunctionDef) -> int:
    """Returns the first line of a function as its code counts: that of its first decorator."""
    return min([definition.lineno, *(d.lineno for d in definition.decorator_list)])


def _functions_of(package: types.ModuleType) -> Iterator[types.FunctionType]:
    """Yields functions and methods defined in a file, and functions wrapped by decorators."""
    waiting: list[Any] = list(vars(package).values())
    visited: set[int] = set()
    while waiting:
        value = waiting.pop()
        if id(value) in visited:
            continue
        visited.add(id(value))
        if isinstance(value, type) and value.__module__ == package.__name__:
            waiting += vars(value).values()
        elif isinstance(value, types.FunctionType):
            waiting += [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
            if value.__code__.co_filename == package.__file__:
                yield value


def _is_filled(cell: types.CellType) -> bool:
    try:
        return isinstance(cell.cell_contents, types.FunctionType)
    except ValueError:  # a variable that has no value yet
        return False


def _code_of(definition: ast.FunctionDef, file: str) -> types.CodeType:
    """Compiles the definition of a function on the lines of its file."""
    tree = ast.fix_missing_locations(ast.Module([definition], []))
    constants = compile(tree, file, "exec").co_consts
    return next(value for value in constants if isinstance(value, types.CodeType))
