"""A module's Triton functions by their syntax, and which of them no other one calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kernelwright.tools.parsing import parse_module
from kernelwright.tools.source import kernels

TRITON, LANGUAGE = "triton", "triton.language"
IMPORTS = {"triton": "import triton\n", "tl": "import triton.language as tl\n"}
"""The modules that these names mean in a kernel that is quoted without its imports."""
Arguments = dict[str, ast.expr]


@dataclass(frozen=True)
class Module:
    """Functions under @triton.jit at the top of a text."""

    text: str
    tree: ast.Module
    functions: dict[str, ast.FunctionDef]

    def entries(self) -> list[str]:
        """Functions that no other one uses: kernels, or functions for kernels that are elsewhere."""
        used = {
            n.id
            for name, node in self.functions.items()
            for n in ast.walk(node)
            if isinstance(n, ast.Name) and n.id != name
        }
        return [name for name in self.functions if name not in used]

    def calls(self, function: ast.FunctionDef) -> Iterator[tuple[str, Arguments]]:
        """Calls of the module's own Triton functions, with the expressions that their parameters are given."""
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.functions:
                names = parameters(self.functions[node.func.id])
                given = dict(zip(names, node.args, strict=False))
                yield node.func.id, given | {k.arg: k.value for k in node.keywords if k.arg}

    def aliases(self) -> dict[str, str]:
        """Returns the names under which the module imports triton and triton.language."""
        found: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {a.asname or a.name: a.name for a in node.names if a.name in (TRITON, LANGUAGE)}
            elif isinstance(node, ast.ImportFrom) and node.module == TRITON:
                found |= {a.asname or a.name: LANGUAGE for a in node.names if a.name == "language"}
        return found


def read_module(text: str) -> Module:
    """Missing imports of triton are put before the text. Raises what `ast.parse` raises."""
    tree = parse_module(text)
    bound = bound_names(tree)
    if missing := "".join(line for name, line in IMPORTS.items() if name not in bound and f"{name}." in text):
        text = missing + text
        tree = parse_module(text)
    wanted = set(kernels(text))
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in wanted}
    return Module(text, tree, functions)


def parameters(function: ast.FunctionDef) -> list[str]:
    """Returns the names of a function's parameters, in their order."""
    return [a.arg for a in arguments(function)]


def arguments(function: ast.FunctionDef) -> list[ast.arg]:
    """Returns the nodes of a function's parameters: positional ones first, then those that are named only."""
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def bound_names(tree: ast.AST) -> set[str]:
    """Every name that is given a meaning anywhere inside."""
    found = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {a.asname or a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
    return found


def returns_value(function: ast.FunctionDef) -> bool:
    """Whether it returns a value: no kernel does."""
    returns = [n for n in ast.walk(function) if isinstance(n, ast.Return)]
    return any(
        n.value is not None and not (isinstance(n.value, ast.Constant) and n.value.value is None) for n in returns
    )
