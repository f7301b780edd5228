"""Removes repetitions from a kernel: values that are computed twice, and numbers in names of loops.

t = tl.load(t_pointer)                              t = tl.load(t_pointer)
for first in tl.range(0, columns, BLOCK):           for first in tl.range(0, columns, BLOCK):
    x = tl.load(x_pointer + first)                      x = tl.load(x_pointer + first)
    largest = maximum(largest, x / t)         ->        largest = maximum(largest, x / t)
t_2 = tl.load(t_pointer)                            for first in tl.range(0, columns, BLOCK):
for first in tl.range(0, columns, BLOCK):               x = tl.load(x_pointer + first)
    x_2 = tl.load(x_pointer + first)                    total += tl.exp(x / t - largest)
    total += tl.exp(x_2 / t_2 - largest)
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from functools import partial

from kernelwright.policies.inductor.syntax import names_assigned, names_in
from kernelwright.policies.inductor.writing.plain import rename_in_place

NUMBERED = re.compile(r"(\w*[a-z])_\d+")
WRITES = re.compile(r"\btl\.(store|atomic_\w+|debug_barrier)\(")


def without_repetitions(function: ast.FunctionDef) -> None:
    """Computes each value of a block of statements once, and reuses names in loops that follow each other."""
    _reuse_values(function, function.body)
    for statement in function.body:
        if isinstance(statement, ast.For):
            _reuse_values(function, statement.body)
    _reuse_names_of_loops(function)


def _reuse_values(function: ast.FunctionDef, block: list[ast.stmt]) -> None:
    """Removes assignments in a block whose value an earlier name has.

    Names with a single assignment alone have a value that stays. A load is repeated only after a write to memory.
    """
    counts = _assignment_counts(function)
    names: dict[str, str] = {}
    first: dict[str, str] = {}

    def renamed(name: str) -> str:
        return names.get(name, name)

    for statement in list(block):
        rename_in_place(statement, renamed)
        if WRITES.search(ast.unparse(statement)):
            first = {value: name for value, name in first.items() if "tl.load(" not in value}
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            continue
        name, value = statement.targets[0].id, ast.unparse(statement.value)
        stays = all(counts[read] <= 1 for read in (name, *names_in(statement.value)))
        if not stays or not isinstance(statement.value, ast.Call | ast.BinOp | ast.Compare):
            continue
        if value in first:
            names[name] = first[value]
            block.remove(statement)
        else:
            first[value] = name
    rename_in_place(function, renamed)


def _assignment_counts(function: ast.FunctionDef) -> Counter[str]:
    """Returns how often each name is assigned; parameters and globals are not counted."""
    stored = [
        n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]
    return Counter(stored)


def _reuse_names_of_loops(function: ast.FunctionDef) -> None:
    """Drops the number from a name that lives in a single loop, where the plain name lives in other loops."""
    loops = [statement for statement in function.body if isinstance(statement, ast.For)]
    outside = names_in(*[s for s in function.body if not isinstance(s, ast.For)])
    outside |= {argument.arg for argument in function.args.args}
    for loop in loops:
        elsewhere = outside | names_in(*[other for other in loops if other is not loop])
        inside = names_in(loop)
        names: dict[str, str] = {}
        for name in sorted(names_assigned(loop) - elsewhere):
            match = NUMBERED.fullmatch(name)
            plain = match[1] if match is not None else name
            is_free = plain not in outside | inside | set(names.values())
            # Only a name of another loop, or it would stand for a value that this loop cannot see.
            if match is not None and is_free:
                names[name] = plain
        rename_in_place(loop, partial(_renamed, names))


def _renamed(names: Mapping[str, str], name: str) -> str:
    return names.get(name, name)
