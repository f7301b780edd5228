"""Triton's own function objects over a checked syntax tree: a JITFunction to compile, an
InterpretedFunction to interpret.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib
import inspect
import threading
import types
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kernelwright.tools.compiling.text import dynamic_values, vocabulary
from kernelwright.tools.trace.trace import Function, Json

if TYPE_CHECKING:
    from types import FunctionType, ModuleType


def code(definition: ast.FunctionDef, line: int, path: str) -> Any:
    """The definition with an empty body as Python's code, its `def` at a line of a file: Triton
    reads the syntax tree, and asks of the function its signature.
    """
    empty = copy.copy(definition)
    empty.body = [ast.copy_location(ast.Pass(), definition)]
    return _compiled_code(
        copy.deepcopy(ast.Module([empty], [])), line, path
    )  # Triton counts lines from the definition


def constant_code(definition: ast.FunctionDef, line: int, path: str) -> Any:
    """Returns Python code of the unchanged definition: a function which computes constants."""
    return _compiled_code(ast.Module([definition], []), line, path)


def interpreted_code(
    definition: ast.FunctionDef,
    line: int,
    path: str,
    names: Mapping[str, Json],
    world: dict[str, Any],
) -> Any:
    """Returns Python code of the definition, rewritten for Triton's interpreter.

    Adds names needed by the rewriting to `world`.
    """
    nodes = list(ast.walk(definition))
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    definition = dynamic_values.Rewriter(names, frozenset(bound)).visit(definition)
    world |= dynamic_values.world()
    return _compiled_code(_rewritten(ast.Module([definition], []), world), line, path)


def _compiled_code(tree: ast.Module, line: int, path: str) -> Any:
    ast.fix_missing_locations(tree)
    ast.increment_lineno(tree, line - 1)
    return compile(tree, path, "exec", dont_inherit=True)


def _rewritten(tree: ast.Module, world: dict[str, Any]) -> ast.Module:
    """Rewrites a kernel as Triton's interpreter does, adding only the names which the rewriting
    introduced (Triton itself adds its whole module).
    """
    from triton.runtime import interpreter

    before = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    tree = interpreter.ASTTransformer().visit(tree)
    after = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    world |= {n: vars(interpreter)[n] for n in after - before if n in vars(interpreter)}
    return tree


_inspect_lock = threading.Lock()


@contextlib.contextmanager
def _source_text(text: str, line: int) -> Iterator[None]:
    """Makes `inspect.getsourcelines`, which Triton calls for a function's text, return this text
    without a file or a search through all modules.
    """
    with _inspect_lock:
        original = inspect.getsourcelines
        inspect.getsourcelines = lambda object: (text.splitlines(keepends=True), line)
        try:
            yield
        finally:
            inspect.getsourcelines = original


def compiled(python: FunctionType, function: Function, definition: ast.FunctionDef) -> Any:
    """Returns a JITFunction of Triton with the checked syntax tree."""
    from triton.runtime.jit import JITFunction

    class KernelFromText(JITFunction):
        def parse(self) -> ast.Module:
            return tree

    tree = ast.Module([definition], [])
    with _source_text(function.text, function.line):
        return KernelFromText(
            python, do_not_specialize=list(function.do_not_specialize), noinline=function.noinline
        )


def constant(python: FunctionType, function: Function, definition: ast.FunctionDef) -> Any:
    """Returns Triton's ConstexprFunction, called by a kernel with constants during compilation."""
    from triton.runtime.jit import ConstexprFunction

    class ConstantFromText(ConstexprFunction):
        def parse(self) -> ast.Module:
            return tree

    tree = ast.Module([definition], [])
    with _source_text(function.text, function.line):
        return ConstantFromText(python)


def interpreted(python: FunctionType) -> Any:
    """Returns Triton's InterpretedFunction for an already rewritten function."""
    from triton.runtime.interpreter import InterpretedFunction

    class InterpretedFromText(InterpretedFunction):
        def rewrite(self) -> Any:
            return self.fn

    return InterpretedFromText(python)


def late(module: ModuleType, name: str) -> Any:
    """Returns a wrapper which looks up a module's function at each call: the interpreter replaces
    functions while a kernel runs.
    """

    def call(*arguments: Any, **keywords: Any) -> Any:
        return getattr(module, name)(*arguments, **keywords)

    return call


def patched(qualified_name: str, value: object) -> Any:
    """Returns a directly imported object (`from triton.language import load`) in the form needed
    by the interpreter.
    """
    import triton.language as tl

    name = qualified_name.rpartition(".")[2].rpartition(":")[2]
    if value in (tl.range, tl.static_range) or tl.core.is_builtin(value):
        owner = tl if hasattr(tl, name) else tl.core
        return late(owner, name)
    module = qualified_name.partition(":")[0]
    if module in vocabulary.LIBDEVICE and isinstance(value, types.FunctionType):
        return late(importlib.import_module(module), name)
    return value
