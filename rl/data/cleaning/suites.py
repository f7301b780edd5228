"""What training data must not hold: the problems of every evaluation suite, by their words, their syntax trees and their dataflow graphs."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent.exits import InputError
from rl.data.dataflow import graph_hash
from tools.problem import Problem, parse
from tools.results import Value

WORDS_LIMIT = 0.8
"""Jaccard of words from which a row is put before a person."""
_WORD = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|[^\s\w]")


class Leak(Value):
    """What a row has in common with a problem of a suite."""

    problem: str
    dropped: bool
    """False: for review only."""
    why: str
    """graph, tree or words:0.87."""


def problems_of(against: Sequence[str]) -> list[Problem]:
    """`kernelbench:DIR`, `tritonbench-t:DIR`, a folder of problem files; the catalogue's held-out problems always. Raises InputError or ProblemError."""
    from agent.problems import catalogue, suite

    found = [p for p in catalogue() if is_held_out(p.source)]
    for text in against:
        name, _, place = text.partition(":")
        if name in ("kernelbench", "tritonbench-t"):
            if not place:
                raise InputError(f"{text}: write {name}:DIR with the folder of its checkout")
            found += suite(name, Path(place))
        elif text == "catalogue":
            found += catalogue()
        elif Path(text).is_dir():
            found += suite(text)
        else:
            raise InputError(
                f"{text} is no suite: write kernelbench:DIR, tritonbench-t:DIR, catalogue or a folder of problem files"
            )
    return found


def graphs_of(against: Sequence[str]) -> frozenset[str]:
    """Dataflow graphs that no training problem may have."""
    return frozenset(graph_hash(p.source) for p in problems_of(against)) - {""}


def is_held_out(source: str) -> bool:
    """A problem of the catalogue with `HELD_OUT = True`."""
    return any(
        isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == "HELD_OUT" for t in node.targets)
        and isinstance(node.value, ast.Constant)
        and node.value.value is True
        for node in parse(source).body
    )


def words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text))


@lru_cache(maxsize=65536)
def tree_hash(source: str) -> str:
    """SHA-1 of the model's syntax tree with names numbered in the order they appear and numbers left out; "" where it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    return hashlib.sha1(_shape(model or tree).encode("utf-8", "replace"), usedforsecurity=False).hexdigest()


def _shape(tree: ast.AST) -> str:
    """The dumped tree without docstrings, annotations, names of variables and numbers. Attributes stay: they are the operations."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            node.body = body[1:] or [ast.Pass()]  # type: ignore[attr-defined]
        if isinstance(node, ast.Name):
            node.id = names.setdefault(node.id, f"n{len(names)}")
        elif isinstance(node, ast.arg):
            node.arg, node.annotation = names.setdefault(node.arg, f"n{len(names)}"), None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            node.value = 0
    return ast.dump(tree)


class Benchmarks:
    """The suites, ready to be compared with."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        import numpy as np

        self.problems = list(problems)
        self._graphs: dict[str, str] = {}
        self._trees: dict[str, str] = {}
        for problem in self.problems:
            if graph := graph_hash(problem.source):
                self._graphs.setdefault(graph, problem.name)
            if tree := tree_hash(problem.source):
                self._trees.setdefault(tree, problem.name)
        sets = [words(p.source) for p in self.problems]
        self._place = {word: i for i, word in enumerate(sorted(frozenset().union(*sets)))}
        self._counts: Any = np.array([len(s) for s in sets])
        self._has: Any = np.zeros((len(sets), len(self._place)), dtype=bool)
        for i, one in enumerate(sets):
            self._has[i, [self._place[w] for w in one]] = True
        self._known: dict[str, Leak | None] = {}

    def leak(self, reference: str) -> Leak | None:
        """None where the text has nothing in common with any problem. The same text is looked at once."""
        if not reference:
            return None
        key = hashlib.sha1(reference.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()
        if key not in self._known:
            self._known[key] = self._compare(reference)
        return self._known[key]

    def _compare(self, reference: str) -> Leak | None:
        if name := self._graphs.get(graph_hash(reference)):
            return Leak(problem=name, dropped=True, why="graph")
        if name := self._trees.get(tree_hash(reference)):
            return Leak(problem=name, dropped=True, why="tree")
        return self._by_words(reference)

    def _by_words(self, reference: str) -> Leak | None:
        if not self.problems:
            return None
        own = words(reference)
        places = [self._place[w] for w in own if w in self._place]
        common = self._has[:, places].sum(axis=1)
        likeness = common / (self._counts + len(own) - common)
        best = int(likeness.argmax())
        if likeness[best] < WORDS_LIMIT:
            return None
        return Leak(problem=self.problems[best].name, dropped=False, why=f"words:{likeness[best]:.2f}")
