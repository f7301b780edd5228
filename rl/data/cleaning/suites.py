"""The problems excluded from training: those of every evaluation suite, compared by words, syntax
trees and dataflow graphs.
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
"""Jaccard similarity of words from which a row is listed for review."""
_WORD = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|[^\s\w]")


class Leak(Value):
    """A similarity between a row and a problem of a suite."""

    problem: str
    dropped: bool
    """Whether the row was dropped; False if only listed for review."""
    why: str
    """Kind of the similarity: `graph`, `tree` or `words:0.87`."""


class SuiteComparison(Value):
    """The result of comparing a row with the suites."""

    leak: Leak | None = None
    compared: bool
    """False if the row contains no Python model: the absence of a leak then proves nothing."""


def problems_of(against: Sequence[str]) -> list[Problem]:
    """Returns the problems of `kernelbench:DIR`, `tritonbench-t:DIR` or a folder of problem
    files, and always the catalogue's held-out problems.

    Raises InputError or ProblemError.
    """
    from kernelwright.agent.problems.finding import catalogue, load_suite

    # The catalogue's held-out problems are always excluded.
    problems = [p for p in catalogue() if "held_out" in p.tags]
    for text in against:
        if text.partition(":")[0] in ("kernelbench", "tritonbench-t"):
            problems += load_checkout(text)
        elif text == "catalogue":
            problems += catalogue()
        elif Path(text).is_dir():
            problems += load_suite(text)
        else:
            raise InputError(
                f"{text} is no suite: write kernelbench:DIR, tritonbench-t:DIR, catalogue or a folder of problem files"
            )
    return problems


@functools.cache
def graphs_of(*against: str) -> frozenset[str]:
    """Returns the dataflow graphs forbidden in training: of the known benchmarks, of the held-out
    catalogue, and of the named suites.
    """
    graphs = set(load_known_benchmarks().names("graphs"))
    for problem in problems_of(against):
        graphs.add(graph_hash(problem.source))
    return frozenset(graphs - {""})


def words(text: str) -> frozenset[str]:
    """Returns the distinct words of a text."""
    return frozenset(_WORD.findall(text))


class Benchmarks:
    """The given suites prepared for comparison, and the known benchmarks by their hashes."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        import numpy as np

        self.problems = list(problems)
        hashes = hash_suite("own", self.problems)
        self._graphs = load_known_benchmarks().names("graphs") | hashes.graphs
        self._trees = load_known_benchmarks().names("trees") | hashes.trees
        # One row a problem and one column a word: intersections with all problems at once.
        word_sets = [words(problem.source) for problem in self.problems]
        vocabulary = sorted(frozenset().union(*word_sets))
        self._column = {word: column for column, word in enumerate(vocabulary)}
        self._counts: Any = np.array([len(word_set) for word_set in word_sets])
        self._has: Any = np.zeros((len(word_sets), len(vocabulary)), dtype=bool)
        for row, word_set in enumerate(word_sets):
            self._has[row, [self._column[word] for word in word_set]] = True
        self._cached_leaks: dict[str, Leak | None] = {}

    def compare(self, row: Row) -> SuiteComparison:
        """Compares every program in the row, and the words of its prompt if it has no reference."""
        programs = programs_of(row)
        leaks = []
        for program in programs:
            if leak := self.leak(program):
                leaks.append(leak)
        if not row.reference and (similar := self._by_words(row.prompt)):
            leaks.append(similar)
        # A leak that drops the row goes before one for review.
        leaks.sort(key=lambda leak: not leak.dropped)
        compared = any(map(holds_model, programs))
        return SuiteComparison(leak=leaks[0] if leaks else None, compared=compared)

    def leak(self, reference: str) -> Leak | None:
        """Returns the leak; None if the text resembles no problem. Results are cached by text."""
        if not reference:
            return None
        key = hashlib.sha1(reference.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()
        if key not in self._cached_leaks:
            self._cached_leaks[key] = self._compare(reference)
        return self._cached_leaks[key]

    def _compare(self, reference: str) -> Leak | None:
        if name := self._graphs.get(graph_hash(reference)):
            return Leak(problem=name, dropped=True, why="graph")
        if name := self._trees.get(tree_hash(reference)):
            return Leak(problem=name, dropped=True, why="tree")
        return self._by_words(reference)

    def _by_words(self, reference: str) -> Leak | None:
        """Returns the problem with the most similar words, if similar enough for a review."""
        if not self.problems:
            return None
        reference_words = words(reference)
        columns = [self._column[word] for word in reference_words if word in self._column]
        # Jaccard similarity with every problem: common words over all words.
        common = self._has[:, columns].sum(axis=1)
        likeness = common / (self._counts + len(reference_words) - common)
        best = int(likeness.argmax())
        if likeness[best] < MIN_WORD_SIMILARITY:
            return None
        why = f"words:{likeness[best]:.2f}"
        return Leak(problem=self.problems[best].name, dropped=False, why=why)
