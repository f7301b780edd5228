"""Counts what a reviewer would not merge in kernel files: rules of readability, held by a checker.

    python -m bench.draft_readability DIR|FILES [--table]

Each finding is a line `FILE:LINE rule: text`; the exit status is 1 if there are any. The rules:

    duplicate load   a kernel loads the same addresses under the same mask twice in one block of statements
    equal store      a kernel stores the same value at the same offsets of two tensors
    dead output      forward allocates a tensor that a kernel writes and nothing reads or returns
    float64 scalar   a kernel computes in float64 although none of its operands is float64
    numbered name    a kernel, operand or variable is named by a number: `matmul_2`
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

GUARD_MARK = "# ---- The contract"
NUMBERED = re.compile(r"[a-z]_\d+$")


class Finding(NamedTuple):
    """A place that breaks a rule."""

    line: int
    rule: str
    text: str


def findings_of(text: str) -> list[Finding]:
    """Returns the findings of a kernel file, in the order of its lines, without those of its contract's checks."""
    tree = ast.parse(text.partition(GUARD_MARK)[0])
    found: list[Finding] = []
    for function in _kernels(tree):
        found += _duplicate_loads(function.body)
        found += _equal_stores(function.body)
        found += _float64_scalars(function)
    for method in _methods(tree):
        found += _dead_outputs(method)
    found += _numbered_names(tree)
    return sorted(set(found))


def _kernels(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and any(
            "jit" in ast.unparse(d) for d in node.decorator_list
        ):
            yield node


def _methods(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for owner in [node for node in tree.body if isinstance(node, ast.ClassDef)]:
        yield from (
            node
            for node in owner.body
            if isinstance(node, ast.FunctionDef) and node.name == "forward"
        )


def _duplicate_loads(body: Sequence[ast.stmt]) -> Iterator[Finding]:
    """Loads of equal text with no store and no new value of a name between them."""
    known: dict[str, int] = {}
    for statement in body:
        for inner in ("body", "orelse"):
            yield from _duplicate_loads(getattr(statement, inner, []))
        for call in _calls(statement, "tl.load"):
            text = ast.unparse(call)
            if text in known and known[text] != call.lineno:
                yield Finding(call.lineno, "duplicate load", text)
            known.setdefault(text, call.lineno)
        if any(_calls(statement, "tl.store")) or any(_calls(statement, "tl.debug_barrier")):
            known.clear()
        assigned = {
            n.id
            for n in ast.walk(statement)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        known = {
            text: line
            for text, line in known.items()
            if not assigned & set(re.findall(r"\w+", text))
        }


def _equal_stores(body: Sequence[ast.stmt]) -> Iterator[Finding]:
    """Stores of equal values at equal offsets in one block of statements."""
    known: set[tuple[str, ...]] = set()
    for statement in body:
        for inner in ("body", "orelse"):
            yield from _equal_stores(getattr(statement, inner, []))
        if not isinstance(statement, ast.Expr):
            continue
        for call in _calls(statement, "tl.store"):
            offset = ast.unparse(call.args[0]).partition(" + ")[2]
            key = offset, *(ast.unparse(argument) for argument in call.args[1:])
            if key in known:
                yield Finding(call.lineno, "equal store", ast.unparse(call))
            known.add(key)


def _float64_scalars(function: ast.FunctionDef) -> Iterator[Finding]:
    if "float64" in (ast.get_docstring(function) or ""):
        return
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr == "float64":
            yield Finding(node.lineno, "float64 scalar", function.name)


def _dead_outputs(method: ast.FunctionDef) -> Iterator[Finding]:
    """Tensors that forward allocates, and names once more alone: in the launch that writes them."""
    uses = Counter(
        n.id for n in ast.walk(method) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    )
    for node in ast.walk(method):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and isinstance(node.targets[0], ast.Name)
        ):
            is_new = ast.unparse(node.value.func) in (
                "torch.empty",
                "torch.empty_like",
                "torch.empty_strided",
            )
            if is_new and uses[node.targets[0].id] <= 1:
                yield Finding(node.lineno, "dead output", node.targets[0].id)


def _numbered_names(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and NUMBERED.search(node.name.removesuffix("_kernel")):
            yield Finding(node.lineno, "numbered name", node.name)
        if isinstance(node, ast.arg) and NUMBERED.search(node.arg.removesuffix("_pointer")):
            yield Finding(node.lineno, "numbered name", node.arg)
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and NUMBERED.search(node.id)
        ):
            yield Finding(node.lineno, "numbered name", node.id)


def _calls(node: ast.AST, name: str) -> Iterator[ast.Call]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == name:
            yield call


def lines_of(text: str) -> int:
    """Returns the lines of the kernels and their module, without blank lines, comments and the contract's checks."""
    lines = text.partition(GUARD_MARK)[0].splitlines()
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in lines)


def main() -> None:
    """Prints the findings; exits with 1 if there are any."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--table", action="store_true", help="count by rule instead of listing")
    arguments = parser.parse_args()
    files = [
        f
        for path in arguments.paths
        for f in (sorted(path.glob("*.py")) if path.is_dir() else [path])
    ]
    counts: Counter[str] = Counter()
    lines: list[int] = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        if "ModelNew" not in text:
            continue
        lines.append(lines_of(text))
        for finding in findings_of(text):
            counts[finding.rule] += 1
            if not arguments.table:
                print(f"{file}:{finding.line} {finding.rule}: {finding.text}")
    print(
        f"{sum(counts.values())} findings in {len(lines)} files; median of lines {statistics.median(lines or [0]):g}"
    )
    for rule, count in counts.most_common():
        print(f"  {rule}: {count}")
    sys.exit(1 if counts else 0)


if __name__ == "__main__":
    main()
