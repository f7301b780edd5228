"""The problems that training data must not contain: those of every evaluation suite, found by their words, their syntax
trees and their dataflow graphs.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kernelwright.errors import InputError
from kernelwright.rl.data.cleaning.known_benchmarks import (
    hash_suite,
    load_checkout,
    load_known_benchmarks,
)
from kernelwright.rl.data.cleaning.programs import holds_model, programs_of
from kernelwright.rl.data.dataflow import graph_hash
from kernelwright.rl.data.rows import Row
from kernelwright.rl.data.tree_hashes import tree_hash
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Value

MIN_WORD_SIMILARITY = 0.8
"""Jaccard of words from which a row is put before a person."""
_WORD = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|[^\s\w]")


class Leak(Value):
    """A similarity between a row and a problem of a suite."""

    problem: str
    dropped: bool
    """Whether the row was dropped; False where it is only listed for review."""
    why: str
    """graph, tree or words:0.87."""


class Comparison(Value):
    """The result of comparing one row with the suites."""

    leak: Leak | None = None
    compared: bool
    """False where the row contains no model in Python: the absence of a leak then proves nothing."""


def problems_of(against: Sequence[str]) -> list[Problem]:
    """`kernelbench:DIR`, `tritonbench-t:DIR`, a folder of problem files; the catalogue's held-out problems always.

    Raises InputError or ProblemError.
    """
    from kernelwright.agent.problems.finding import catalogue, load_suite

    found = [p for p in catalogue() if "held_out" in p.tags]
    for text in against:
        if text.partition(":")[0] in ("kernelbench", "tritonbench-t"):
            found += load_checkout(text)
        elif text == "catalogue":
            found += catalogue()
        elif Path(text).is_dir():
            found += load_suite(text)
        else:
            raise InputError(
                f"{text} is no suite: write kernelbench:DIR, tritonbench-t:DIR, catalogue or a folder of problem files"
            )
    return found


@functools.cache
def graphs_of(*against: str) -> frozenset[str]:
    """Dataflow graphs that no training problem may have: those of the benchmarks that are known, of the held-out
    catalogue, and of what is named.
    """
    return (
        frozenset(load_known_benchmarks().names("graphs"))
        | frozenset(graph_hash(p.source) for p in problems_of(against))
    ) - {""}


def words(text: str) -> frozenset[str]:
    """Returns the distinct words of a text."""
    return frozenset(_WORD.findall(text))


class Benchmarks:
    """The suites given, ready to be compared with, and the benchmarks that are known by their hashes."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        import numpy as np

        self.problems = list(problems)
        own = hash_suite("own", self.problems)
        self._graphs = load_known_benchmarks().names("graphs") | own.graphs
        self._trees = load_known_benchmarks().names("trees") | own.trees
        sets = [words(p.source) for p in self.problems]
        self._place = {word: i for i, word in enumerate(sorted(frozenset().union(*sets)))}
        self._counts: Any = np.array([len(s) for s in sets])
        self._has: Any = np.zeros((len(sets), len(self._place)), dtype=bool)
        for i, one in enumerate(sets):
            self._has[i, [self._place[w] for w in one]] = True
        self._known: dict[str, Leak | None] = {}

    def compare(self, row: Row) -> Comparison:
        """Compares by every program in the row, and by the words of its prompt where it has no reference."""
        programs = programs_of(row)
        found = [leak for text in programs if (leak := self.leak(text))]
        if not row.reference and (worded := self._by_words(row.prompt)):
            found.append(worded)
        found.sort(key=lambda leak: not leak.dropped)
        return Comparison(
            leak=found[0] if found else None, compared=any(map(holds_model, programs))
        )

    def leak(self, reference: str) -> Leak | None:
        """Returns the leak; None where the text has nothing in common with any problem. The same text is looked at
        once.
        """
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
        if likeness[best] < MIN_WORD_SIMILARITY:
            return None
        return Leak(
            problem=self.problems[best].name, dropped=False, why=f"words:{likeness[best]:.2f}"
        )
