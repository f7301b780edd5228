"""Benchmarks as hashes: problems excluded from training are recognized without a checkout, and no
benchmark text is shipped.

`python -m kernelwright.rl.data.cleaning.known_benchmarks kernelbench:DIR tritonbench-t:DIR` reads
the checkouts and rewrites known_benchmarks.json.

A dataflow graph or a syntax tree cannot be recovered from its hash. `--against kernelbench:DIR`
adds the comparison of words.
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
"""A module whose hashes are stored beside the benchmarks'. If the current code hashes it
otherwise, the file was written by other code and cannot be compared with.
"""


class BenchmarkHashes(Value):
    """The problems of a benchmark, by their hashes."""

    name: str
    problems: int
    graphs: dict[str, str]
    """First problem with a dataflow graph (rl.data.dataflow), by the graph's hash."""
    trees: dict[str, str]
    """First problem with a syntax tree (rl.data.tree_hashes), by the tree's hash."""


class KnownBenchmarks(Value):
    """The parsed contents of known_benchmarks.json."""

    canary: tuple[str, str]
    suites: tuple[BenchmarkHashes, ...]

    def names(self, kind: Literal["graphs", "trees"]) -> dict[str, str]:
        """Returns a problem for each hash."""
        return {
            digest: name for suite in self.suites for digest, name in getattr(suite, kind).items()
        }

    @property
    def counts(self) -> dict[str, int]:
        """Returns the number of problems of each suite, with the key `kernelbench, by hash`."""
        return {f"{suite.name}, by hash": suite.problems for suite in self.suites}


@functools.cache
def load_known_benchmarks() -> KnownBenchmarks:
    """Loads the shipped file. Raises InputError if the current code would hash otherwise."""
    known_benchmarks = KnownBenchmarks.model_validate_json(
        KNOWN_BENCHMARKS_FILE.read_text(encoding="utf-8")
    )
    if known_benchmarks.canary != canary_hashes():
        raise InputError(
            f"{KNOWN_BENCHMARKS_FILE.name} was written by another graph hash: run python -m "
            "kernelwright.rl.data.cleaning.known_benchmarks SUITE:DIR ..."
        )
    return known_benchmarks


def canary_hashes() -> tuple[str, str]:
    """Returns the dataflow hash and the tree hash of CANARY, which change with the hashing code."""
    return graph_hash(CANARY), tree_hash(CANARY)


def hash_suite(name: str, problems: Sequence[Problem]) -> BenchmarkHashes:
    """Returns the hashes that identify the problems of a suite."""
    graphs: dict[str, str] = {}
    trees: dict[str, str] = {}
    for problem in problems:
        if graph := graph_hash(problem.source):
            graphs.setdefault(graph, problem.name)
        if tree := tree_hash(problem.source):
            trees.setdefault(tree, problem.name)
    return BenchmarkHashes(name=name, problems=len(problems), graphs=graphs, trees=trees)


def load_checkout(text: str) -> list[Problem]:
    """Returns the problems of `NAME:DIR`. Raises InputError and ProblemError."""
    from kernelwright.agent.problems.finding import load_suite

    name, _, folder = text.partition(":")
    if not folder:
        raise InputError(f"{text}: write {name}:DIR with the folder of its checkout")
    return load_suite(name, Path(folder))


def write_known_benchmarks(checkouts: Sequence[str]) -> KnownBenchmarks:
    """Reads each `NAME:DIR` and writes the file. Raises InputError and ProblemError."""
    suites = tuple(hash_suite(text.partition(":")[0], load_checkout(text)) for text in checkouts)
    known_benchmarks = KnownBenchmarks(canary=canary_hashes(), suites=suites)
    KNOWN_BENCHMARKS_FILE.write_text(
        known_benchmarks.model_dump_json(indent=0) + "\n", encoding="utf-8"
    )
    return known_benchmarks


if __name__ == "__main__":
    print(write_known_benchmarks(sys.argv[1:]).counts)
