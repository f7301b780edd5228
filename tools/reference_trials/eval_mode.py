"""Chooses the mode in which a module is judged. A module that draws random numbers in training mode (dropout,
stochastic depth, noise) and none in eval mode is judged in eval mode: no kernel draws the same numbers.

The mode is written into the problem's text (`self.eval()` at the end of the constructor), so that judge, drafts,
prompts and clocks all read the same problem. Trusted process only: the reference's own text is run.
"""

from __future__ import annotations

import ast
import functools
import random
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.source_lines import insert_lines, origin_of_line
from kernelwright.tools.numerics.seeds import seeded
from kernelwright.tools.operators.dispatch import without_dynamo
from kernelwright.tools.problem import Problem, ProblemError, parse
from kernelwright.tools.references.dry_run import DryRunFailed, load_for_dry_run, measure_cost
from kernelwright.tools.references.small_sizes import shrink

if TYPE_CHECKING:
    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types


MAX_NAMED_MODULES = 3
"""Modules that draw random numbers which the reason names."""


class JudgedProblem(NamedTuple):
    """A problem as judged, in its mode."""

    problem: Problem
    """In eval mode if `reason` is not empty; otherwise unchanged."""
    reason: str = ""
    """Reason for eval mode: `the module's Dropout draws random numbers in training mode`."""


@functools.lru_cache(maxsize=512)
def as_judged(problem: Problem) -> JudgedProblem:
    """Puts a problem into eval mode if that removes its random numbers; returns any other problem
    unchanged.

    Example: `F.dropout(x, 0.1, training=self.training)` is judged in eval mode; with
    `training=True` the problem is unchanged, and the judge refuses it as random.
    """
    if lines_that_may_draw(problem) == ():
        return JudgedProblem(problem)
    small = shrink(problem)
    quiet = in_eval_mode(problem)
    if quiet is None or not small.fits:
        return JudgedProblem(problem)
    try:
        drawing = _modules_that_draw(problem.with_sizes(small.sizes))
        if not drawing or _modules_that_draw(quiet.with_sizes(small.sizes)):
            return JudgedProblem(problem)
    except Exception:  # whoever judges the problem names what is wrong with it
        return JudgedProblem(problem)
    names = " and ".join(drawing[:MAX_NAMED_MODULES])
    verb = "draws" if len(drawing) == 1 else "draw"
    return JudgedProblem(quiet, f"the module's {names} {verb} random numbers in training mode")


def in_eval_mode(problem: Problem) -> Problem | None:
    """Returns the problem with `self.eval()` at the end of Model's constructor; None if Model is no
    class in the source."""
    try:
        tree = parse(problem.source)
    except ProblemError:
        return None
    model = next(
        (n for n in reversed(tree.body) if isinstance(n, ast.ClassDef) and n.name == "Model"), None
    )
    if model is None:
        return None
    constructor = next(
        (n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None
    )
    lines = problem.source.splitlines()
    if constructor is None:
        _insert_constructor(lines, model)
    else:
        _insert_call(lines, constructor)
    return problem.model_copy(update={"source": "\n".join(lines) + "\n"})


def _insert_constructor(lines: list[str], model: ast.ClassDef) -> None:
    """Inserts a constructor like the inherited one after the last line of the class."""
    if model.body[0].lineno == model.lineno:
        following = origin_of_line(lines, model.lineno + 1).directive
        lines[model.lineno - 1 : model.end_lineno] = [*ast.unparse(model).splitlines(), following]
        model = next(
            n
            for n in parse("\n".join(lines)).body
            if isinstance(n, ast.ClassDef) and n.name == "Model"
        )
    indent = _indent_of(lines, model.body[0])
    assert model.end_lineno is not None
    constructor = [
        "",
        f"{indent}def __init__(self, *args, **kwargs):",
        f"{indent}    super().__init__(*args, **kwargs)",
        f"{indent}    self.eval()",
    ]
    insert_lines(lines, model.end_lineno, constructor)


def _insert_call(lines: list[str], constructor: ast.FunctionDef) -> None:
    """`self.eval()` after the last statement of a constructor, before a `return` at its end."""
    owner = (*constructor.args.posonlyargs, *constructor.args.args)[0].arg
    last = constructor.body[-1]
    assert last.end_lineno is not None
    if last.lineno == constructor.lineno:
        lines[last.end_lineno - 1] += f"; {owner}.eval()"
        return
    at = last.lineno - 1 if isinstance(last, ast.Return) else last.end_lineno
    insert_lines(lines, at, [f"{_indent_of(lines, constructor.body[0])}{owner}.eval()"])


def _indent_of(lines: list[str], statement: ast.stmt) -> str:
    line = lines[statement.lineno - 1]
    return line[: len(line) - len(line.lstrip())]


# -------------------------------------------------------------- random numbers
def lines_that_may_draw(problem: Problem) -> tuple[int, ...] | None:
    """Returns lines at which forward calls operators that may draw random numbers; None if the
    lines are unknown.

    Unknown are draws by Python's generators, and sources that do not run without data.
    """
    try:
        lines = measure_cost(problem).draw_lines
    except (DryRunFailed, ProblemError):
        return None
    if 0 in lines or (not lines and "random" in problem.source):
        return None
    return lines


def _modules_that_draw(problem: Problem) -> list[str]:
    """Returns class names of the modules that draw random numbers in a call on the CPU; `forward`
    for Python's or NumPy's generators."""
    import torch

    with load_for_dry_run(problem.source) as module, torch.no_grad(), seeded(0, python=True):
        model = module.Model(*module.get_init_inputs())
        inputs = module.get_inputs()
        before = _python_states()
        with _draw_watch()() as watch:
            model(*inputs)
        names: list[str] = watch.names
        return list(dict.fromkeys([*names, *(["forward"] if _python_states() != before else [])]))


def _python_states() -> tuple[Any, str]:
    numpy = sys.modules.get("numpy")
    return random.getstate(), str(numpy.random.get_state(legacy=False)) if numpy is not None else ""


@functools.cache
def _draw_watch() -> Any:
    """Returns a class of dispatch modes that record the modules whose operators advance torch's
    generator."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class DrawWatch(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_dispatch__(
            self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
        ) -> Any:
            if torch.Tag.nondeterministic_seeded not in func.tags:
                return func(*args, **(kwargs or {}))
            before = torch.default_generator.get_state()
            result = func(*args, **(kwargs or {}))
            # Attention bears the tag without dropout, too: what counts is whether it drew.
            if not torch.equal(before, torch.default_generator.get_state()):
                self.names.append(_module_at_work())
            return result

    return without_dynamo(DrawWatch)


def _module_at_work() -> str:
    """Returns the class of the innermost module on the stack; `forward` for the problem's Model
    itself."""
    import torch

    frame = sys._getframe(2)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module):
            name = type(owner).__name__
            return name if name != "Model" else "forward"
        frame = frame.f_back  # type: ignore[assignment]
    return "forward"
