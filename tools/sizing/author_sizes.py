"""The sizes that a problem's author names: shapes that its text lists, and other functions that give inputs."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from kernelwright.tools.problem import Problem, ProblemError, module_integers, parse
from kernelwright.tools.sizing.learning import AUTHOR_SHAPES
from kernelwright.tools.sizing.size_draws import DRAWING_CALLS, DrawnSize, DrawnSizes, functions_of
from kernelwright.tools.sizing.size_search import changeable_integers
from kernelwright.tools.sizing.structure import Budget
from kernelwright.tools.sizing.trial import Trials

NAME_OF_OTHER_INPUTS = re.compile(r"get_inputs_\w+")


def author_sizes(problem: Problem, base: Mapping[str, int] | None = None, budget: Budget | None = None) -> DrawnSizes:
    """The shapes that the problem's author asks for, in the order of the text.

    Two forms are understood, both at module level. A list named `shapes` or `SHAPES` gives numbers that the reference
    names:

        shapes = [{"rows": 5, "columns": 7}, {"rows": 64, "columns": 1000}]

    A function whose name begins with `get_inputs_` is used in the place of `get_inputs`, and with it the function
    `get_init_inputs_` of the same ending, where there is one, in the place of `get_init_inputs`:

        def get_inputs_odd():
            return [torch.randn(3, 7)]

    base: sizes that the others keep. budget: shapes over it are left out, and a note says which; only with a budget is
    anything run. Raises ProblemError where a shape names something that is no number of the reference. A list of
    dictionaries that names none of them is taken for something else.
    """
    asked = [
        DrawnSize(sizes={**(base or {}), **shape}, why=f"the author's shape {number}")
        for number, shape in enumerate(_author_shapes(problem), 1)
    ]
    others = [name for name in functions_of(problem) if NAME_OF_OTHER_INPUTS.fullmatch(name)]
    asked += [DrawnSize(sizes=dict(base or {}), why=f"the author's {name}", inputs=name) for name in others]
    if budget is None:
        return DrawnSizes(sizes=tuple(asked))
    fitting = [drawn for drawn in asked if _fits(drawn, problem, budget)]
    notes = tuple(f"{drawn.why} is too large here" for drawn in asked if drawn not in fitting)
    return DrawnSizes(sizes=tuple(fitting), notes=notes)


def _fits(drawn: DrawnSize, problem: Problem, budget: Budget) -> bool:
    """Whether a size fits the budget; True as well where no dry run tells its cost."""
    cost = Trials(drawn.applied(problem), {}, DRAWING_CALLS).at({})
    return cost is None or budget.holds(cost)


def _author_shapes(problem: Problem) -> list[dict[str, int]]:
    known = {*module_integers(problem.source), *changeable_integers(problem)}
    found: list[dict[str, int]] = []
    for node in parse(problem.source).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if getattr(targets[0], "id", "") in AUTHOR_SHAPES:
            shapes = _sizes_written(getattr(node, "value", None))
            if any(known & set(shape) for shape in shapes):
                found += shapes
    if unknown := sorted({name for shape in found for name in shape} - known):
        names = ", ".join(sorted(module_integers(problem.source)))
        raise ProblemError(f"shapes names {', '.join(unknown)}, which is no number of the reference: it has {names}")
    return found


def _sizes_written(node: ast.expr | None) -> list[dict[str, int]]:
    if node is None:
        return []
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return []
    entries = value if isinstance(value, list | tuple) else []
    return [
        entry
        for entry in entries
        if isinstance(entry, dict) and entry and all(type(k) is str and type(v) is int for k, v in entry.items())
    ]
