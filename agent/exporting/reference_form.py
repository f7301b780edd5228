"""Determines the form of a reference's outputs, and whether forward changes its buffers, by
running the reference.

The reference runs in a process of its own (tools/reference_trials).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import JsonValue

from kernelwright.agent.contracts.reference_facts import FACTS_SEED, literal, parameters_of
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.reference_trials.trials import reference_trials
from kernelwright.tools.report import Value

if TYPE_CHECKING:
    import torch


class ReferenceForm(Value):
    """Form of the outputs of a reference."""

    output: str
    """Expression of the outputs, built from the tuple `o` of tensors: `(o[0], {"mean": o[1]})`."""
    tensors: int
    """Number of output tensors."""
    parameters: tuple[str, ...] = ()
    """Names of the parameters of `forward`."""
    changes_buffers: bool = False
    """Whether a call in the constructed mode changes parameters or buffers."""


def reference_form(problem: Problem) -> ReferenceForm:
    """Returns the form of a problem's reference. Raises ProblemError if an output has no tensor,
    or an output cannot be built from tensors and literals.
    """
    return ReferenceForm.model_validate(
        reference_trials().run(f"{__name__}:form_here", problem, {})
    )


def form_here(problem: Problem) -> JsonValue:
    """Entry point in the reference process: returns the form as JSON."""
    import torch

    from kernelwright.tools.references.reference import Reference

    reference = Reference(problem, "cpu")
    with torch.random.fork_rng(devices=[]), reference.settings(), torch.no_grad():
        model = reference.model(FACTS_SEED)
        before = _versions(model)
        outputs = model(*reference.arguments(reference.inputs(FACTS_SEED)))
        changes = before != _versions(model)
    counter = iter(range(1_000_000))
    expression = _expression(outputs, counter)
    tensors = next(counter)
    if not tensors:
        raise ProblemError("the reference returns no tensor, so it cannot be an operator of torch")
    form = ReferenceForm(
        output=expression,
        tensors=tensors,
        parameters=tuple(p.name for p in parameters_of(type(model).forward)),
        changes_buffers=changes,
    )
    return form.model_dump(mode="json")


def _versions(model: torch.nn.Module) -> list[int]:
    """Returns the in-place modification counter of each weight and buffer."""
    return [tensor._version for tensor in (*model.parameters(), *model.buffers())]


def _expression(value: object, counter: Iterator[int]) -> str:
    """Returns an expression for an output, with the tensors numbered in the order of pytrees."""
    import torch

    if isinstance(value, torch.Tensor):
        return f"o[{next(counter)}]"
    if type(value) is list:
        return f"[{', '.join(_expression(item, counter) for item in value)}]"
    if type(value) is tuple:
        items = [_expression(item, counter) for item in value]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if type(value) is dict and all(type(key) is str for key in value):
        entries = [f"{key!r}: {_expression(item, counter)}" for key, item in value.items()]
        return "{" + ", ".join(entries) + "}"
    text = literal(value)
    if text is None:
        kind = type(value).__name__
        raise ProblemError(f"the reference returns a {kind}, which an operator of torch cannot")
    return text
