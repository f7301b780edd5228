"""`for row in x` over the rows of a tensor written as a loop over their numbers, which `loop_syntax` understands.

    for row in x:                        __rows_0__ = __rows__(x)
        h = cell(row, h)                 for __at_0__ in range(__count__(__rows_0__)):
                                             row = __rows_0__[__at_0__]
                                             h = cell(row, h)

`x.unbind(dim)`, `torch.unbind(x, dim)` and `enumerate` of these are understood too. What is no tensor when forward
runs is walked through as Python does.
"""

from __future__ import annotations

import ast
from typing import Any


def over_ranges(method: ast.FunctionDef) -> None:
    """Rewrites the loops of a method, in place; line numbers stay."""
    number = 0
    for body in [n.body for n in ast.walk(method) if isinstance(n, ast.FunctionDef | ast.If | ast.With)]:
        for place in range(len(body) - 1, -1, -1):
            loop = body[place]
            if isinstance(loop, ast.For) and (parts := _parts(loop)) is not None and not loop.orelse:
                body[place : place + 1] = _over_range(loop, *parts, number)
                number += 1


def _parts(loop: ast.For) -> tuple[str, str, str] | None:
    """What is walked through, the name of a row, and the name of its number ("" where it has none)."""
    target, walked, at = loop.target, loop.iter, ""
    if isinstance(walked, ast.Call) and ast.unparse(walked.func) == "enumerate" and len(walked.args) == 1:
        names = target.elts if isinstance(target, ast.Tuple) else []
        if len(names) != 2 or not isinstance(names[0], ast.Name) or walked.keywords:
            return None
        at, target, walked = names[0].id, names[1], walked.args[0]
    if not isinstance(target, ast.Name):
        return None
    source = walked.id if isinstance(walked, ast.Name) else _unbound(walked)
    return (source, target.id, at) if source else None


def _unbound(walked: ast.expr) -> str:
    """`x.unbind(1)` as the tensor with that dimension first; empty where it is something else."""
    if not isinstance(walked, ast.Call) or not isinstance(walked.func, ast.Attribute) or walked.func.attr != "unbind":
        return ""
    given = [ast.unparse(a) for a in walked.args]
    owner = ast.unparse(walked.func.value)
    tensor, *rest = given if owner == "torch" else [owner, *given]
    dim = next((ast.unparse(k.value) for k in walked.keywords if k.arg == "dim"), rest[0] if rest else "0")
    return f"({tensor}).movedim({dim}, 0)"


def _over_range(loop: ast.For, walked: str, row: str, at: str, number: int) -> list[ast.stmt]:
    rows, place = f"__rows_{number}__", f"__at_{number}__"
    loop.target = ast.Name(place, ast.Store())
    loop.iter = ast.parse(f"range(__count__({rows}))", mode="eval").body
    heads = [f"{row} = {rows}[{place}]"] + [f"{at} = {place}"] * bool(at)
    loop.body = [*(_placed(head, loop) for head in heads), *loop.body]
    for part in (*ast.walk(loop.target), *ast.walk(loop.iter)):
        ast.copy_location(part, loop)
    return [_placed(f"{rows} = __rows__({walked})", loop), loop]


def _placed(text: str, node: ast.stmt) -> ast.stmt:
    made = ast.parse(text).body[0]
    for part in ast.walk(made):
        ast.copy_location(part, node)
    return made


# ------------------------------------------------------------------------------------------------ what the text calls
def rows_of(walked: Any) -> Any:
    """A tensor as it is; of everything else a list."""
    import torch

    return walked if isinstance(walked, torch.Tensor) else list(walked)


def count_of(rows: Any) -> Any:
    """How many rows there are; of a tensor a symbol where its size is one."""
    import torch

    return rows.shape[0] if isinstance(rows, torch.Tensor) else len(rows)
