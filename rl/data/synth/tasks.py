"""A source of problems for training and for measuring: without end, the same for the same seed, with splits that never overlap."""

from __future__ import annotations

from collections.abc import Iterator

from rl.data.rows import Split
from tools.problem import Problem
from tools.results import Value


class Task(Value):
    """One problem, and an answer that the generator holds to be right. `rl data synth` keeps only those that the tools agree with."""

    problem: Problem
    family: str
    depth: int
    """Operations in the chain."""
    ops: tuple[str, ...]
    solution: str
    """Source of a ModelNew."""
    split: Split


def tasks(split: Split, n: int, seed: int = 0) -> list[Task]:
    """The first `n` tasks of a split: no two of them the same problem."""
    source = stream(split, seed)
    return [next(source) for _ in range(n)]


def stream(split: Split, seed: int = 0) -> Iterator[Task]:
    """Tasks of a split without end, no problem twice."""
    from rl.data.synth.drawing import draw

    seen: set[str] = set()
    number = 0
    while True:
        program = draw(f"{seed}/{split}/{number}", split)
        number += 1
        if program is None:
            continue
        problem = Problem(
            name=f"synth:{seed}/{split}/{number - 1}", source=program.reference, suite="synth",
            title=program.name.replace("_", " "), family=program.family,
        )  # fmt: skip
        if problem.hash in seen:
            continue
        seen.add(problem.hash)
        yield Task(
            problem=problem,
            family=program.family,
            depth=program.depth,
            ops=program.ops,
            solution=program.candidate,
            split=split,
        )
