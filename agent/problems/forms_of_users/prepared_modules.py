"""Collects calls on a module between building and calling: `.eval()`, `.half()`,
`.to(torch.bfloat16)`. The constructor of `Model` then performs them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelwright.agent.problems.tritonbench_cases import names_stored_by
from kernelwright.source_lines import insert_lines

MODES = frozenset({"eval", "train", "half", "bfloat16", "float", "double", "requires_grad_"})
"""Module methods that affect the computation.

`cuda` and `cpu` are excluded, because the judge chooses the device.
"""
DTYPES = frozenset({"float16", "half", "bfloat16", "float32", "float", "float64", "double"})


def preparations(run: list[ast.stmt], build: ast.Call) -> list[str]:
    """Returns calls such as `self.eval()` for a module built by `build`, in textual order."""
    at = next((i for i, s in enumerate(run) if any(n is build for n in ast.walk(s))), None)
    if at is None:
        return []
    calls = list(_chained(run[at], build))
    names = names_stored_by(run[at])
    for statement in run[at + 1 :]:
        for node in ast.walk(statement):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in names
            ):
                return calls  # it is called: what follows is no part of this call
        for name in [n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id in names]:
            calls += _chained(statement, name)
    return calls


def _chained(statement: ast.stmt, start: ast.expr) -> Iterator[str]:
    """Yields the computation-related calls of a chain `Block(64).to("cuda").eval()`, from the
    inside out.
    """
    node: ast.expr = start
    while True:
        outer = next(
            (n for n in ast.walk(statement) if isinstance(n, ast.Call) and _method_of(n) is node),
            None,
        )
        if outer is None or not isinstance(outer.func, ast.Attribute):
            return
        if (word := _preparation(outer, outer.func.attr)) is not None:
            yield f"self.{word}"
        node = outer


def _method_of(call: ast.Call) -> ast.expr | None:
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def _preparation(call: ast.Call, method: str) -> str | None:
    if method in MODES:
        return ast.unparse(ast.Call(ast.Name(method, ast.Load()), call.args, call.keywords))
    if method != "to":
        return None
    arguments = [*call.args, *(k.value for k in call.keywords)]
    dtypes = [v for v in arguments if isinstance(v, ast.Attribute) and v.attr in DTYPES]
    return f"to({ast.unparse(dtypes[0])})" if dtypes else None


def with_preparations(source: str, module: str, words: list[str]) -> str:
    """Adds calls to the end of a class's constructor.

    Line numbers are preserved if its last statement is a simple one.
    """
    words = list(dict.fromkeys(words))
    tree = ast.parse(source)
    node = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == module), None)
    if node is None or not words:
        return source
    lines = source.splitlines()
    init = next(
        (n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None
    )
    if init is None:
        row, indent = node.body[0].lineno - 1, " " * node.body[0].col_offset
        row = min([row, *(d.lineno - 1 for d in getattr(node.body[0], "decorator_list", []))])
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
