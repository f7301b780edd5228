"""Accumulation of split fp32 products (lowering/split_products.py): how the three products of a
step are added.

The two small products accumulate in a common sum. The large product starts anew in every step and
is added to the
total in fp32, because tensor cores truncate when adding (`max_num_imprecise_acc` keeps the
compiler from joining the
two). If the total is not finite the small sum is ignored: the low part of an infinity is NaN.
"""

from __future__ import annotations

import ast
import re

from kernelwright.policies.inductor.writing.plain import assignments, drop_unused

SMALL_SUM = "small_sum"
SUM_OF_THREE = re.compile(r"(\w+) \+ (\w+) \+ (\w+)")


def is_operand_split(text: str) -> bool:
    """Whether a kernel, as Inductor wrote it, splits an operand into its parts."""
    return "tl.dot(" not in text and bool(
        re.search(
            r"(\w+) = (\w+)\.to\(tl\.float16\)\s+(\w+) = \1\.to\(tl\.float32\)\s+(\w+) = \2 - \3\s",
            text,
        )
    )


def add_up_parts(function: ast.FunctionDef) -> bool:
    """Rewrites every loop over three products of parts, in place. Returns whether there is such a
    loop.
    """
    count = 0
    # From the end, so that insertions do not move the statements still to visit.
    for position, loop in reversed(list(enumerate(function.body))):
        if isinstance(loop, ast.For) and (
            total := _added_up(loop, f"{SMALL_SUM}_{count + 1}" if count else SMALL_SUM)
        ):
            small = f"{SMALL_SUM}_{count + 1}" if count else SMALL_SUM
            start = next(
                v for n, v in assignments(ast.Module(function.body[:position], [])) if n == total
            )
            whole = (
                f"{total} = tl.where(tl.abs({total}) < float('inf'), {total} + {small}, {total})"
            )
            function.body.insert(position + 1, ast.parse(whole).body[0])
            function.body.insert(position, ast.parse(f"{small} = {ast.unparse(start)}").body[0])
            count += 1
    drop_unused(function)
    ast.fix_missing_locations(function)
    return count > 0


def _added_up(loop: ast.For, small: str) -> str:
    """Rewrites a loop over three products and returns the name of the total; empty for other
    loops.
    """
    last = loop.body[-1]
    added = (
        SUM_OF_THREE.fullmatch(ast.unparse(last.value)) if isinstance(last, ast.AugAssign) else None
    )
    dots = {
        n: v
        for n, v in assignments(loop)
        if isinstance(v, ast.Call) and ast.unparse(v.func) == "tl.dot"
    }
    if added is None or not isinstance(last, ast.AugAssign) or set(added.groups()) != set(dots):
        return ""
    for statement in loop.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            continue
        name = ast.unparse(statement.targets[0])
        if name in added.groups():
            operands = statement.value.args[:2]
            statement.value.args, statement.value.keywords = operands, []
            if name == added[3]:
                # The large product starts at zero in each step, and keeps its accumulator apart.
                whole = ast.keyword("max_num_imprecise_acc", ast.Name("STEP_BLOCK", ast.Load()))
                statement.value.keywords.append(whole)
            else:
                statement.targets, statement.value.args = [ast.Name(small, ast.Store())], [
                    *operands, ast.Name(small, ast.Load())]  # fmt: skip
    last.value = ast.Name(added[3], ast.Load())
    return ast.unparse(last.target)


def without_round_trips(function: ast.FunctionDef) -> None:
    """Removes the detour through fp32 in `tl.load(...).to(tl.float32)` read only as
    `x.to(tl.bfloat16)`, in place.

    A value in fp32 passes through registers; without the detour the product reads from shared
    memory.
    """
    for dtype in ("bfloat16", "float16"):
        for name, value in list(assignments(function)):
            call = value if isinstance(value, ast.Call) else None
            wide = call is not None and re.fullmatch(
                r"tl\.load\(.*\)\.to\(tl\.float32\)", ast.unparse(value), re.S
            )
            read = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name
                    and isinstance(n.ctx, ast.Load)]  # fmt: skip
            narrow = f"{name}.to(tl.{dtype})"
            back = [
                n
                for n in ast.walk(function)
                if isinstance(n, ast.Call) and ast.unparse(n) == narrow
            ]
            if wide and call is not None and read and len(back) == len(read):
                _Narrow(narrow, name).visit(function)
                assert isinstance(call.func, ast.Attribute)
                _Narrow(ast.unparse(value), ast.unparse(call.func.value)).visit(function)
    ast.fix_missing_locations(function)


class _Narrow(ast.NodeTransformer):
    """Calls with a text, replaced."""

    def __init__(self, old: str, new: str) -> None:
        self._old, self._new = old, new

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if ast.unparse(node) == self._old:
            return ast.parse(self._new, mode="eval").body
        self.generic_visit(node)
        return node
