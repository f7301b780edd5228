"""Determines facts about a reference by running it: names and defaults of arguments, inputs
modified in place, and dependence on the module's mode.

The reference runs in the calling process; `tools/reference_trials` provides separate processes.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kernelwright.agent.contracts.contract import Mode
from kernelwright.agent.problems.forms_of_users.signatures import signature_of
from kernelwright.agent.problems.syntax_search import definitions, first_definition
from kernelwright.tools.problem import Problem, ProblemError, parse
from kernelwright.tools.report import Value

if TYPE_CHECKING:
    import torch

    from kernelwright.tools.references.reference import Reference

FACTS_SEED = 0
RELATIVE_TOLERANCES = {"float16": 2e-2, "bfloat16": 2e-2, "float64": 1e-9}
"""Relative tolerance per dtype within which outputs of two modes are equal; DEFAULT_TOLERANCE for
other dtypes.
"""
DEFAULT_TOLERANCE = 1e-4


class SignatureParameter(Value):
    """Parameter of a signature."""

    name: str
    default: str | None = None
    """Default as a Python literal; None if absent or not a literal."""
    written_out: bool = True
    """False if the default cannot be written as a literal."""


class ReferenceFacts(Value):
    """Facts learned from a run of a reference."""

    forward: tuple[SignatureParameter, ...] = ()
    constructor: tuple[SignatureParameter, ...] = ()
    written: tuple[str, ...] = ()
    """Positions of inputs modified by forward: `0`, `1[mask]`."""
    mode: Mode = Mode.ANY
    contiguous: tuple[bool, ...] = ()
    """Whether each output is contiguous."""
    depends_on_weights: tuple[bool, ...] = ()
    """Whether a gradient of each output reaches a weight; empty if the reference cannot run in
    grad mode.
    """


def facts_of(problem: Problem, sizes: Mapping[str, int]) -> ReferenceFacts:
    """Runs the reference on the CPU at these sizes. Raises ProblemError if it fails."""
    import torch

    from kernelwright.tools.references.reference import Reference

    reference = Reference(problem.with_sizes(sizes), "cpu")
    with torch.random.fork_rng(devices=[]):
        model = reference.model(FACTS_SEED)
        inputs = reference.inputs(FACTS_SEED)
        # torch counts in-place writes in `_version`.
        versions = _versions(inputs)
        outputs = reference.run(model, inputs, FACTS_SEED)
        both = zip(reference.input_names, versions, _versions(inputs), strict=True)
        changed = [name for name, before, after in both if before != after]

        def outputs_in(training: bool) -> list[object] | None:
            try:
                # A new model, because a call may change buffers (running statistics).
                other = reference.model(FACTS_SEED)
                return reference.run(
                    other.train(training), reference.inputs(FACTS_SEED), FACTS_SEED
                )
            except (ProblemError, AttributeError):
                return None

        mode = _mode(outputs, outputs_in)
    return ReferenceFacts(
        forward=(*parameters_of(type(model).forward), *_dropped_parameters(problem)),
        constructor=parameters_of(type(model).__init__),
        written=tuple(changed),
        mode=mode,
        contiguous=tuple(not isinstance(v, torch.Tensor) or v.is_contiguous() for v in outputs),
        depends_on_weights=_depends_on_weights(reference),
    )


def _depends_on_weights(reference: Reference) -> tuple[bool, ...]:
    import torch

    from kernelwright.tools.trace.forms_of_outputs import flatten

    with torch.random.fork_rng(devices=[]), reference.settings():
        model, inputs = reference.model(FACTS_SEED), reference.inputs(FACTS_SEED)
        try:
            with torch.enable_grad():
                outputs = flatten(model(*reference.arguments(inputs)))
        # In grad mode torch refuses some in-place writes to leaves.
        except RuntimeError:
            return ()
    return tuple(bool(getattr(value, "requires_grad", False)) for value in outputs)


def _versions(inputs: list[object]) -> list[int]:
    """Returns the in-place modification counter of each tensor."""
    return [int(getattr(value, "_version", 0)) for value in inputs]


def _mode(built: list[object], outputs_in: Callable[[bool], list[object] | None]) -> Mode:
    """Returns the modes in which the outputs equal those of the reference as built."""
    in_training, in_eval = (_all_close(built, outputs_in(mode)) for mode in (True, False))
    if in_training and in_eval:
        return Mode.ANY
    if in_training:
        return Mode.TRAINING
    if in_eval:
        return Mode.EVAL
    return Mode.MIXED


def _all_close(built: list[object], repeated: list[object] | None) -> bool:
    if repeated is None or len(built) != len(repeated):
        return False
    return all(map(_is_close, built, repeated))


def _is_close(value: object, other: object) -> bool:
    import torch

    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return value is other or bool(value == other)
    if value.shape != other.shape or value.dtype != other.dtype:
        return False
    tolerance = RELATIVE_TOLERANCES.get(str(value.dtype).removeprefix("torch."), DEFAULT_TOLERANCE)
    scale = _largest(value)
    return torch.allclose(value, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def _largest(value: torch.Tensor) -> float:
    """Returns the mean absolute value of the finite elements, the scale for differences near
    zero.
    """
    if not value.is_floating_point() or not value.numel():
        return 0.0
    mean = float(value.double().abs().nan_to_num(0.0, 0.0, 0.0).mean())
    return mean if math.isfinite(mean) else 0.0


def parameters_of(function: Callable[..., object]) -> tuple[SignatureParameter, ...]:
    """Returns the parameters after `self`, without `*args` and `**kwargs`; empty if there is no
    signature.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())[1:]
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return tuple(_parameter(p.name, p.default) for p in parameters if p.kind not in kinds)


def _parameter(name: str, default: object) -> SignatureParameter:
    if default is inspect.Parameter.empty:
        return SignatureParameter(name=name)
    written = literal(default)
    return SignatureParameter(name=name, default=written, written_out=written is not None)


def literal(value: object) -> str | None:
    """Returns a plain value as a Python literal; None for other values."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    text = repr(value)
    try:
        return text if ast.literal_eval(text) == value else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _dropped_parameters(problem: Problem) -> tuple[SignatureParameter, ...]:
    """Returns parameters of the called function that `Model.forward` leaves at a default or sets
    to a plain value.

    A function becomes a problem as `def forward(self, x, bias): return gated_gelu(x, bias)`; a
    parameter with an unused default (`scale=1.0`) is then missing from forward.
    """
    tree = parse(problem.source)
    call = _only_call(tree)
    if call is None or not isinstance(call.func, ast.Name):
        return ()
    function = definitions(tree.body, ast.FunctionDef).get(call.func.id)
    if function is None:
        return ()
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    # Values of the parameters: defaults, overridden by the arguments of the call.
    values: dict[str, ast.expr] = dict(signature_of(function, bound=False).defaults)
    values |= dict(zip(names, call.args, strict=False))
    values |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    # Arguments that are names are parameters of forward and not fixed.
    fixed = {name: node for name, node in values.items() if not isinstance(node, ast.Name)}
    return tuple(_written_parameter(name, node) for name, node in fixed.items())


def _written_parameter(name: str, default: ast.expr) -> SignatureParameter:
    try:
        written = literal(ast.literal_eval(default))
    except (ValueError, TypeError):
        written = None
    return SignatureParameter(name=name, default=written, written_out=written is not None)


def _only_call(tree: ast.Module) -> ast.Call | None:
    """Returns the call if `Model.forward` consists of a single returned call; otherwise None."""
    model = first_definition(tree.body, ast.ClassDef, "Model")
    forward = first_definition(model.body, ast.FunctionDef, "forward") if model else None
    if forward is None or len(forward.body) != 1:
        return None
    statement = forward.body[0]
    value = statement.value if isinstance(statement, ast.Return) else None
    if not isinstance(value, ast.Call):
        return None
    has_star = any(isinstance(argument, ast.Starred) for argument in value.args)
    return None if has_star else value
