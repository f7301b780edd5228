"""A file without what runs when it is imported."""

from __future__ import annotations

import ast
import re
from collections import Counter

from kernelwright.agent.problems.tritonbench_cases import names_loaded_by, names_stored_by
from kernelwright.tools.problem import parse

SETTING = re.compile(r"torch\.(set_default|set_float32|backends\.)")
"""Calls that set how torch computes: they are part of what the module answers."""


def without_runs(source: str, built: set[str]) -> str:
    """The text with blank lines in the place of `__main__`, tests and what is run at the top. built: classes, and names
    of what the file builds and calls.
    """
    tree, lines, called = parse(source), source.splitlines(), set(built)
    values = called - {n.name for n in tree.body if isinstance(n, ast.ClassDef)}  # `Other = Norm` is no run
    gone: list[ast.stmt] = [n for n in tree.body if isinstance(n, ast.FunctionDef) and _is_run(n.name)]
    for statement in tree.body:
        guard = isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)
        runs = isinstance(statement, ast.With | ast.Assert | ast.Delete) or _is_shown(statement)
        if guard or runs:
            gone.append(statement)
        elif isinstance(statement, ast.Assign | ast.For | ast.If) and (
            (names_loaded_by(statement) | names_stored_by(statement)) & (called if makes_calls(statement) else values)
        ):
            gone.append(statement)
            called |= names_stored_by(statement)
            values |= names_stored_by(statement)
    gone += _unread([s for s in tree.body if s.lineno not in {g.lineno for g in gone}])
    for node in gone:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        for number in range(first - 1, node.end_lineno or first):
            lines[number] = ""
    return "\n".join(lines) + "\n"


def _is_shown(statement: ast.stmt) -> bool:
    """Tells whether a statement only shows a value or runs something. Docstrings and settings of torch stay."""
    if not isinstance(statement, ast.Expr) or isinstance(statement.value, ast.Constant):
        return False
    return not SETTING.match(ast.unparse(statement.value))


def _is_run(name: str) -> bool:
    return name.startswith("test") or name == "main"


def _unread(kept: list[ast.stmt]) -> list[ast.stmt]:
    """Returns those statements at the top of a file that make something by a call (`x = torch.randn(8, 4,
    device="cuda")`) which nothing else there reads: get_inputs makes its inputs itself, on no device.
    """
    gone: list[ast.stmt] = []
    while True:
        left = [s for s in kept if s not in gone]
        read = Counter(n for s in left for n in free_names(s))
        found = [
            s
            for s in left
            if isinstance(s, ast.Assign | ast.AnnAssign) and makes_calls(s) and _names_only(s)
            and not any(read[n] - (n in free_names(s)) for n in names_stored_by(s))
        ]  # fmt: skip
        if not found:
            return gone
        gone += found


def free_names(node: ast.AST) -> set[str]:
    """Returns the names that a statement reads, without the parameters and local names of a function."""
    if isinstance(node, ast.ClassDef):
        return {n for inner in [*node.body, *node.bases, *node.decorator_list] for n in free_names(inner)}
    if not isinstance(node, ast.FunctionDef):
        return names_loaded_by(node)
    own = {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)} | names_stored_by(node)
    arguments = ast.walk(node.args)
    annotations = [a.annotation for a in arguments if isinstance(a, ast.arg) and a.annotation]
    defaults = [*node.args.defaults, *(d for d in node.args.kw_defaults if d), *node.decorator_list, *annotations]
    return (names_loaded_by(node) - own) | {n for d in defaults for n in names_loaded_by(d)}


def _names_only(statement: ast.Assign | ast.AnnAssign) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return all(isinstance(n, ast.Name | ast.Tuple | ast.List) for t in targets for n in [t, *getattr(t, "elts", [])])


def makes_calls(statement: ast.stmt) -> bool:
    """Whether a statement at the top calls something; imports and constants do not."""
    return any(isinstance(n, ast.Call) for n in ast.walk(statement))
