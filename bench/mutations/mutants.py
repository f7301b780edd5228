"""Mutants of honest kernels: which there are, and a sample of them that depends on a seed alone."""

from __future__ import annotations

import ast
import hashlib
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench.judge_suites import Entry
from bench.mutations.kinds import KINDS, half_of


class Mutant(NamedTuple):
    """One changed line of one kernel."""

    entry: Entry
    kind: str
    line: int
    before: str
    after: str
    source: str
    """The whole file with the change."""

    @property
    def key(self) -> str:
        """Names the mutant for good: 16 hexadecimal digits of its text and its kernel's name."""
        return hashlib.sha256(
            f"{self.entry.name}\n{self.kind}\n{self.source}".encode()
        ).hexdigest()[:16]

    @property
    def half(self) -> str:
        """The half of the kinds that this one's kind belongs to: develop or report."""
        return half_of(self.kind)


def sampled(entries: Sequence[Entry], count: int, seed: int, half: str = "") -> list[Mutant]:
    """Draws `count` mutants: kinds take turns, and so do the kernels of a kind, so that no long kernel and no common
    kind outweighs the others. half: develop or report; both where it is empty.
    """
    kinds = [kind for kind in KINDS if not half or half_of(kind) == half]
    waiting = {
        kind: _shuffled_by_kernel(entries, kind, random.Random(f"{seed} {kind}")) for kind in kinds
    }
    chosen: list[Mutant] = []
    while len(chosen) < count and waiting:
        for kind in list(waiting):
            mutant = next(waiting[kind], None)
            if mutant is None:
                del waiting[kind]
            elif len(chosen) < count:
                chosen.append(mutant)
    return chosen


def _shuffled_by_kernel(
    entries: Sequence[Entry], kind: str, order: random.Random
) -> Iterator[Mutant]:
    """Yields one mutant of each kernel, in random order, then a second one of each, and so on."""
    waiting = order.sample(list(entries), len(entries))
    lists: dict[str, list[Mutant]] = {}
    while waiting:
        remaining = []
        for entry in waiting:
            if entry.name not in lists:
                mutants = list(mutants_of(entry, kind))
                lists[entry.name] = order.sample(mutants, len(mutants))
            if lists[entry.name]:
                yield lists[entry.name].pop()
                remaining.append(entry)
        waiting = remaining


def mutants_of(entry: Entry, kind: str) -> Iterator[Mutant]:
    """Yields every change of one kind in the `@triton.jit` functions of a kernel file."""
    source = entry.source
    for function in ast.parse(source).body:
        if isinstance(function, ast.FunctionDef) and _is_kernel(function):
            for statement in function.body:
                for node in ast.walk(statement):
                    yield from _changes(entry, kind, node, source)


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any("triton.jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def _changes(entry: Entry, kind: str, node: ast.AST, source: str) -> Iterator[Mutant]:
    for changed in KINDS[kind](node):
        segment = ast.get_source_segment(source, node) or ""
        text = ast.unparse(ast.fix_missing_locations(changed))
        after = f"({text})" if isinstance(changed, ast.expr) else text
        mutated = _replaced(source, node, after)
        if mutated is not None:
            yield Mutant(entry, kind, node.lineno, segment, text, mutated)  # type: ignore[attr-defined]


def _replaced(source: str, node: ast.AST, text: str) -> str | None:
    """The source with a node's text replaced; None where the result is no Python. Columns count bytes of UTF-8."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    begin = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
    end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
    whole = source.encode()
    mutated = (whole[:begin] + text.encode() + whole[end:]).decode()
    try:
        ast.parse(mutated)
    except SyntaxError:
        return None
    return mutated
