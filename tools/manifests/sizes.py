"""Chooses sizes at which a CPU can measure a problem: reduces the batch first and the widths
last, because the passing wrong answers depend on the widths.
"""

from __future__ import annotations

import ast

from kernelwright.bindings import binding_statement
from kernelwright.tools.problem import Problem, ProblemError, module_integers, parse
from kernelwright.tools.timing.roofline import Work, count_work

BATCH_COST_GOAL = (48 << 20, 1 << 30)
"""Bytes and operations of a call to which the batch is reduced."""
MAX_COST = (256 << 20, 12 << 30)
"""Bytes and operations of a call to which widths are reduced too."""
MAX_COST_OF_LONG_RUNS = (5 << 30, 256 << 30)
"""Maximum bytes and operations of a call with `long_runs`, which take minutes per problem."""
MIN_BATCH = 2
MIN_WIDTH = 64


def fitting_sizes(problem: Problem, long_runs: bool = False) -> dict[str, int]:
    """Returns the problem's own CPU shapes, if declared; else integers halved until a call fits.

    Raises ProblemError if no sizes fit.
    """
    if problem.cpu_sizes:
        return problem.cpu_sizes
    sizes: dict[str, int] = {}
    integers = module_integers(problem.source)
    for name in _order(problem, integers):
        floor, limit = (MIN_BATCH, BATCH_COST_GOAL) if "batch" in name else (MIN_WIDTH, MAX_COST)
        while (work := _work(problem.with_sizes(sizes))) is not None and not _fits(work, limit):
            value = sizes.get(name, integers[name])
            smaller = _work(problem.with_sizes({**sizes, name: max(floor, value // 2)}))
            if value <= floor or smaller is None or _cost(smaller) >= _cost(work):
                break
            sizes[name] = max(floor, value // 2)
    work = _work(problem.with_sizes(sizes))
    if work is not None and not _fits(work, MAX_COST_OF_LONG_RUNS if long_runs else MAX_COST):
        raise ProblemError(
            f"too large for a CPU at any size ({(work.operations or 0) / 1e9:.0f} G operations, "
            f"{(work.bytes or 0) / 1e6:.0f} MB)"
        )
    return sizes


def _fits(work: Work, limit: tuple[int, int]) -> bool:
    return (work.bytes or 0) <= limit[0] and (work.operations or 0) <= limit[1]


def _cost(work: Work) -> int:
    return (work.bytes or 0) + (work.operations or 0)


def _work(problem: Problem) -> Work | None:
    try:
        return count_work(problem)
    except (ProblemError, RuntimeError, TypeError, ValueError, NotImplementedError):
        return None


def _order(problem: Problem, integers: dict[str, int]) -> list[str]:
    """Orders integers for reduction: batch sizes, then integers outside the model's constructor,
    then the others; each group largest first.
    """
    built = _names_in(problem, "get_init_inputs")
    large = [n for n, v in integers.items() if v > MIN_BATCH]
    return sorted(large, key=lambda n: ("batch" not in n, n in built, -integers[n]))


def _names_in(problem: Problem, function: str) -> set[str]:
    definition = binding_statement(parse(problem.source), function)
    parts = ast.walk(definition) if definition is not None else ()
    return {part.id for part in parts if isinstance(part, ast.Name)}
