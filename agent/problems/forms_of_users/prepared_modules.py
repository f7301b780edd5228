"""Collects calls on a module between building and calling: `.eval()`, `.half()`,
`.to(torch.bfloat16)`. The constructor of `Model` then performs them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelwright.agent.problems.forms_of_users.text_edits import first_line_of
from kernelwright.agent.problems.syntax_search import (
    argument_values,
    calls_inside,
    first_definition,
)
from kernelwright.agent.problems.tritonbench_cases import names_stored_by
from kernelwright.source_lines import insert_lines

MODULE_METHODS = frozenset(
    {"eval", "train", "half", "bfloat16", "float", "double", "requires_grad_"}
)
"""Module methods that affect the computation.

`cuda` and `cpu` are excluded, because the judge chooses the device.
"""
FLOAT_DTYPE_NAMES = frozenset(
    {"float16", "half", "bfloat16", "float32", "float", "float64", "double"}
)


def preparations(run: list[ast.stmt], build: ast.Call) -> list[str]:
    """Returns calls such as `self.eval()` for a module built by `build`, in textual order."""
    built_at = _index_of(run, build)
    if built_at is None:
        return []
    calls = list(_chained(run[built_at], build))
    names = names_stored_by(run[built_at])
    for statement in run[built_at + 1 :]:
        # After the first call of the module, further changes do not affect this call.
        if any(_is_call_of(call, names) for call in calls_inside(statement)):
            return calls
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and node.id in names:
                calls += _chained(statement, node)
    return calls


def _index_of(run: list[ast.stmt], node: ast.expr) -> int | None:
    """Returns the index of the statement that contains a node (compared by identity)."""
    for index, statement in enumerate(run):
        if any(part is node for part in ast.walk(statement)):
            return index
    return None


def _is_call_of(call: ast.Call, names: set[str]) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in names


def _chained(statement: ast.stmt, start: ast.expr) -> Iterator[str]:
    """Yields the computation-related calls of a chain `Block(64).to("cuda").eval()`, from the
    inside out.
    """
    node: ast.expr = start
    while True:
        methods = [call for call in calls_inside(statement) if _method_of(call) is node]
        outer = methods[0] if methods else None
        if outer is None or not isinstance(outer.func, ast.Attribute):
            return
        if (word := _preparation(outer, outer.func.attr)) is not None:
            yield f"self.{word}"
        node = outer


def _method_of(call: ast.Call) -> ast.expr | None:
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def _preparation(call: ast.Call, method: str) -> str | None:
    if method in MODULE_METHODS:
        return ast.unparse(ast.Call(ast.Name(method, ast.Load()), call.args, call.keywords))
    if method != "to":
        return None
    for value in argument_values(call):
        if isinstance(value, ast.Attribute) and value.attr in FLOAT_DTYPE_NAMES:
            return f"to({ast.unparse(value)})"
    return None


def with_preparations(source: str, module: str, words: list[str]) -> str:
    """Adds calls to the end of a class's constructor.

    Line numbers are preserved if its last statement is a simple one.
    """
    words = list(dict.fromkeys(words))
    tree = ast.parse(source)
    node = first_definition(tree.body, ast.ClassDef, module)
    if node is None or not words:
        return source
    lines = source.splitlines()
    init = first_definition(node.body, ast.FunctionDef, "__init__")
    if init is None:
        row, indent = first_line_of(node.body[0]) - 1, " " * node.body[0].col_offset
        constructor = [
            f"{indent}def __init__(self, *arguments):",
            f"{indent}    super().__init__(*arguments)",
        ]
        insert_lines(lines, row, [*constructor, *(f"{indent}    {word}" for word in words), ""])
        return "\n".join(lines) + "\n"
    last = init.body[-1]
    row = (last.end_lineno or last.lineno) - 1
    plain = (
        isinstance(last, ast.Assign | ast.AnnAssign | ast.Expr)
        and len(lines[row].encode()) == last.end_col_offset
    )
    if plain:
        lines[row] += "".join(f"; {word}" for word in words)
    else:
        insert_lines(lines, row + 1, [f"{' ' * init.body[0].col_offset}{word}" for word in words])
    return "\n".join(lines) + "\n"
