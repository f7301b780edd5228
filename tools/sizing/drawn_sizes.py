"""Sizes as values: those that are drawn, and those that a problem's author names in its text."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from kernelwright.bindings import bound_names
from kernelwright.tools.problem import Problem, ProblemError, module_integers, parse
from kernelwright.tools.references.size_search import changeable_integers
from kernelwright.tools.report import Value
from kernelwright.tools.sizing.learning import AUTHOR_SHAPES
from kernelwright.tools.sizing.structure import Budget
from kernelwright.tools.sizing.trial import Trials

NAME_OF_OTHER_INPUTS = re.compile(r"get_inputs_\w+")
CPU_BUDGET = Budget(elements=1 << 16, operations=10_000_000, rows=512)
"""The usual budget of one size under Triton's interpreter."""
GPU_BUDGET = Budget(elements=1 << 24, operations=20_000_000_000)
AUTHOR_CALLS = 8_000
"""aten calls of the dry run of one of the author's sizes."""
AUTHOR = "author"
"""The strategy of the sizes that a problem's author names."""


class DrawnSize(Value):
    """One set of sizes."""

    sizes: dict[str, int]
    """Argument for `Problem.with_sizes`, including the base's sizes."""
    why: str
    """Description of the size: "rows 1, columns one more than 64"."""
    strategy: str = ""
    """Names of the strategies whose goals the size meets, the first goal's first: "one, edge"."""
    inputs: str = ""
    """Function of the reference that returns the inputs, if not get_inputs."""
    one_call: bool = False
    """Only a single call is made, regardless of its length."""

    def applied(self, problem: Problem) -> Problem:
        """Returns the problem at these sizes."""
        resized = problem.with_sizes(self.sizes)
        if not self.inputs:
            return resized
        text = f"{resized.source}\n\nget_inputs = {self.inputs}\n"
        init = self.inputs.replace("get_inputs", "get_init_inputs")
        if init in bound_names(parse(problem.source)):
            text += f"get_init_inputs = {init}\n"
        return resized.model_copy(update={"source": text})


class DrawnSizes(Value):
    """The sizes at which a candidate is checked."""

    sizes: tuple[DrawnSize, ...]
    notes: tuple[str, ...] = ()
    """Reasons for a smaller number of sizes than requested, and for numbers that stay unchanged."""


def author_sizes(
    problem: Problem, base: Mapping[str, int] | None = None, budget: Budget | None = None
) -> DrawnSizes:
    """Returns the shapes requested by the problem's author, in source order.

    Two forms are supported, both at module level. A list named `shapes` or `SHAPES` assigns numbers
    of the reference:

        shapes = [{"rows": 5, "columns": 7}, {"rows": 64, "columns": 1000}]

    A function whose name starts with `get_inputs_` replaces `get_inputs`; a function
    `get_init_inputs_` of the same ending, if any, replaces `get_init_inputs`:

        def get_inputs_odd():
            return [torch.randn(3, 7)]

    base: sizes for all other numbers. budget: shapes above it are dropped, with a note; only with a
    budget is anything run. Raises ProblemError if a shape names an unknown number. A list of
    dictionaries without any known name is ignored.
    """
    unchanged = dict(base or {})
    sizes = [
        DrawnSize(sizes={**unchanged, **shape}, why=f"the author's shape {number}", strategy=AUTHOR)
        for number, shape in enumerate(_author_shapes(problem), 1)
    ]
    for name in functions_of(problem):
        if NAME_OF_OTHER_INPUTS.fullmatch(name):
            sizes.append(
                DrawnSize(sizes=unchanged, why=f"the author's {name}", strategy=AUTHOR, inputs=name)
            )
    if budget is None:
        return DrawnSizes(sizes=tuple(sizes))
    fitting = tuple(size for size in sizes if _fits(size, problem, budget))
    notes = tuple(f"{size.why} is too large here" for size in sizes if size not in fitting)
    return DrawnSizes(sizes=fitting, notes=notes)


def is_empty(size: DrawnSize) -> bool:
    """Whether an extent of a size is zero."""
    return 0 in size.sizes.values()


def functions_of(problem: Problem) -> list[str]:
    """Returns the names of the functions of a reference, in the order of its text."""
    return [node.name for node in parse(problem.source).body if isinstance(node, ast.FunctionDef)]


def _fits(size: DrawnSize, problem: Problem, budget: Budget) -> bool:
    """Returns True if a size fits the budget, or if no dry run shows its cost."""
    cost = Trials(size.applied(problem), {}, AUTHOR_CALLS).at({})
    return cost is None or budget.holds(cost)


def _author_shapes(problem: Problem) -> list[dict[str, int]]:
    known_names = {*module_integers(problem.source), *changeable_integers(problem)}
    shapes: list[dict[str, int]] = []
    for node in parse(problem.source).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if getattr(targets[0], "id", "") in AUTHOR_SHAPES:
            listed = _sizes_written(getattr(node, "value", None))
            if any(known_names & set(shape) for shape in listed):
                shapes += listed
    if unknown := sorted({name for shape in shapes for name in shape} - known_names):
        names = ", ".join(sorted(module_integers(problem.source)))
        raise ProblemError(
            f"shapes names {', '.join(unknown)}, which is no number of the reference: it has {names}"
        )
    return shapes


def _sizes_written(node: ast.expr | None) -> list[dict[str, int]]:
    if node is None:
        return []
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return []
    entries = value if isinstance(value, list | tuple) else []
    return [entry for entry in entries if isinstance(entry, dict) and _is_shape(entry)]


def _is_shape(entry: dict[object, object]) -> bool:
    return bool(entry) and all(
        type(name) is str and type(extent) is int for name, extent in entry.items()
    )
