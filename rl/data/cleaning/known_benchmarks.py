"""Benchmarks as hashes: what training data must not hold is known without a checkout of theirs, and none of their text
lies here.

`python -m kernelwright.rl.data.cleaning.known_benchmarks kernelbench:DIR tritonbench-t:DIR` reads the checkouts and
writes known_benchmarks.json anew.

A dataflow graph or a syntax tree cannot be read back from its hash. Whoever gives `--against kernelbench:DIR` has the
comparison of words besides.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from kernelwright.errors import InputError
from kernelwright.rl.data.dataflow import graph_hash
from kernelwright.rl.data.tree_hashes import tree_hash
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Value

KNOWN_BENCHMARKS_FILE = Path(__file__).parent / "known_benchmarks.json"
CANARY = (
    "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x, y):\n"
    "        return torch.softmax(x @ y, dim=-1) * 2.0\n"
)
"""A module whose hashes are stored beside the benchmarks'. Where today's code hashes it otherwise, the file was written
by other code and cannot be compared with.
"""


class BenchmarkHashes(Value):
    """One benchmark's problems, by their hashes."""

    name: str
    problems: int
    graphs: dict[str, str]
    """Dataflow graph (rl.data.dataflow) -> the first problem that has it."""
    trees: dict[str, str]
    """Syntax tree of the model (rl.data.trees) -> the first problem that has it."""


class KnownBenchmarks(Value):
    """The contents of known_benchmarks.json."""

    canary: tuple[str, str]
    suites: tuple[BenchmarkHashes, ...]

    def names(self, what: Literal["graphs", "trees"]) -> dict[str, str]:
        """Hash -> a problem that has it."""
        return {
            digest: name for suite in self.suites for digest, name in getattr(suite, what).items()
        }

    @property
    def counts(self) -> dict[str, int]:
        """Counts problems for people: `kernelbench, by hash` -> problems."""
        return {f"{suite.name}, by hash": suite.problems for suite in self.suites}


@functools.cache
def load_known_benchmarks() -> KnownBenchmarks:
    """Loads the file that ships with the project. Raises InputError where today's code would hash otherwise."""
    found = KnownBenchmarks.model_validate_json(KNOWN_BENCHMARKS_FILE.read_text(encoding="utf-8"))
    if found.canary != canary_hashes():
        raise InputError(
            f"{KNOWN_BENCHMARKS_FILE.name} was written by another graph hash: run python -m "
            "kernelwright.rl.data.cleaning.known_benchmarks SUITE:DIR ..."
        )
    return found


def canary_hashes() -> tuple[str, str]:
    """Returns the dataflow hash and the tree hash of CANARY, which change when the hashing does."""
    return graph_hash(CANARY), tree_hash(CANARY)


def hash_suite(name: str, problems: Sequence[Problem]) -> BenchmarkHashes:
    """Returns the hashes by which the problems of a suite are known again."""
    graphs: dict[str, str] = {}
    trees: dict[str, str] = {}
    for problem in problems:
        if graph := graph_hash(problem.source):
            graphs.setdefault(graph, problem.name)
        if tree := tree_hash(problem.source):
            trees.setdefault(tree, problem.name)
    return BenchmarkHashes(name=name, problems=len(problems), graphs=graphs, trees=trees)


def load_checkout(text: str) -> list[Problem]:
    """The problems of `NAME:DIR`. Raises InputError and ProblemError."""
    from kernelwright.agent.problems.finding import load_suite

    name, _, place = text.partition(":")
    if not place:
        raise InputError(f"{text}: write {name}:DIR with the folder of its checkout")
    return load_suite(name, Path(place))


def write_known_benchmarks(asked: Sequence[str]) -> KnownBenchmarks:
    """Reads each `NAME:DIR` and writes the file. Raises InputError and ProblemError."""
    suites = tuple(hash_suite(text.partition(":")[0], load_checkout(text)) for text in asked)
    found = KnownBenchmarks(canary=canary_hashes(), suites=suites)
    KNOWN_BENCHMARKS_FILE.write_text(found.model_dump_json(indent=0) + "\n", encoding="utf-8")
    return found


if __name__ == "__main__":
    print(write_known_benchmarks(sys.argv[1:]).counts)
