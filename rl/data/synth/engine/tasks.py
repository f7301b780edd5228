"""Endless source of problems for training and measuring: equal seeds give equal problems, and
splits never overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from kernelwright.rl.data.rows import Split
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Value


class Task(Value):
    """A problem, and an answer correct by construction.

    `rl data synth` writes only problems whose answer the tools accept.
    """

    problem: Problem
    family: str
    depth: int
    """Number of operations in the chain."""
    ops: tuple[str, ...]
    solution: str
    """Source of the answer with its ModelNew."""
    split: Split


def tasks(
    split: Split, n: int, seed: int = 0, forbidden: frozenset[str] | None = None
) -> list[Task]:
    """Returns the first `n` tasks of a split, without repeated problems."""
    source = stream(split, seed, forbidden)
    return [next(source) for _ in range(n)]


def stream(split: Split, seed: int = 0, forbidden: frozenset[str] | None = None) -> Iterator[Task]:
    """Yields tasks of a split without end and without repeated problems."""
    hashes: set[str] = set()
    for number in count():
        task = task_of(split, seed, number, forbidden)
        if task is not None and task.problem.hash not in hashes:
            hashes.add(task.problem.hash)
            yield task


def task_of(
    split: Split, seed: int, number: int, forbidden: frozenset[str] | None = None
) -> Task | None:
    """Returns the task of a draw; None if the program belongs to another split, or its dataflow
    graph is forbidden.

    forbidden: graphs as returned by `rl.data.cleaning.suites.graphs_of`; None: those of every
    known benchmark.
    """
    from kernelwright.rl.data.cleaning.suites import graphs_of
    from kernelwright.rl.data.dataflow import graph_hash
    from kernelwright.rl.data.synth.engine.drawing import draw_program

    program = draw_program(f"{seed}/{split}/{number}", split)
    if program is None:
        return None
    if graph_hash(program.reference) in (graphs_of() if forbidden is None else forbidden):
        return None
    problem = Problem(
        name=f"synth:{seed}/{split}/{number}", source=program.reference, suite="synth",
        title=program.name.replace("_", " "), family=program.family,
    )  # fmt: skip
    return Task(
        problem=problem,
        family=program.family,
        depth=program.depth,
        ops=program.ops,
        solution=program.candidate,
        split=split,
    )
