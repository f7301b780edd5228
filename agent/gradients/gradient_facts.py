"""Determines which gradients a reference has, and compares them with differences of its outputs.

The reference runs in a process of its own (tools/reference_trials).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.reference_trials.trials import reference_trials
from kernelwright.tools.report import Value

if TYPE_CHECKING:
    import torch

    from kernelwright.tools.references.reference import Reference

GRADIENT_SEED = 0
DIRECTIONS = 4
"""Random directions in which the outputs are differentiated numerically."""
STEP = 1e-6
"""Step of the central differences in float64. The error of a difference is about STEP squared plus 1e-16 / STEP."""
MAX_DIFFERENCE = 1e-5
"""Maximum relative difference between the gradients of autograd and agreeing central differences.
"""


class GradientFacts(Value):
    """Gradients of a reference."""

    arguments: tuple[str, ...]
    """Names of the arguments of `forward`, in the order of `get_inputs`."""
    inputs: tuple[str, ...]
    """Names of the inputs with a gradient."""
    weights: tuple[str, ...]
    """Names of the parameters with a gradient, as `named_parameters` gives them."""
    weight_positions: tuple[int, ...]
    """Positions of these parameters in `named_parameters`."""
    outputs: tuple[str, ...]
    """Expressions of the differentiable outputs in terms of `output`: `output[0]`."""
    output_positions: tuple[int, ...]
    """Positions of these outputs among the tensors of the output."""
    changes_buffers: bool = False
    """Whether forward changes buffers (running statistics)."""
    difference: float | None = None
    """Largest relative difference to central differences in float64; None if the reference does not run there."""

    @property
    def agree(self) -> bool:
        """Whether the gradients are those of the outputs: false for a detached value or a straight-through estimate."""
        return self.difference is None or self.difference <= MAX_DIFFERENCE

    @property
    def differences_line(self) -> str:
        """Says how far the reference's gradients are from differences of its outputs."""
        if self.difference is None:
            return "the reference does not run in float64: its gradients were not compared with differences"
        if self.agree:
            return f"the reference's gradients equal differences in float64 within {self.difference:.1g}"
        return (
            f"the reference's gradients are not those of its outputs (they differ by {self.difference:.1g}): "
            "a value is detached, or a backward of its own estimates them; the kernels compute what autograd gives"
        )


def gradient_facts(problem: Problem) -> GradientFacts:
    """Returns the facts at sizes small enough for a CPU.

    Raises ProblemError if the reference has no gradient, draws random numbers in training mode, or
    writes to an input.
    """
    facts = reference_trials().run(f"{__name__}:facts_here", problem, {})
    return GradientFacts.model_validate(facts)


def facts_here(problem: Problem) -> JsonValue:
    """Entry point in the reference process: returns the facts as JSON."""
    import torch

    from kernelwright.tools.reference_trials.eval_mode import as_judged
    from kernelwright.tools.references.reference import Reference
    from kernelwright.tools.references.small_sizes import shrink

    if reason := as_judged(problem).reason:
        raise ProblemError(
            f"--backward: {reason}: remove the module, or end the constructor with self.eval()"
        )
    small = shrink(problem)
    reference = Reference(problem.with_sizes(small.sizes) if small.fits else problem, "cpu")
    with torch.random.fork_rng(devices=[]), reference.settings(), torch.enable_grad():
        model = reference.model(GRADIENT_SEED)
        drawn = reference.inputs(GRADIENT_SEED)
        if any(
            "[" in name
            for name, v in zip(reference.input_names, drawn, strict=True)
            if _is_floating(v)
        ):
            raise ProblemError(
                "--backward: an input is a list, tuple or dictionary of tensors: pass the tensors themselves"
            )
        inputs = [_leaf(value) for value in reference.arguments(drawn)]
        # In-place writes to a leaf that requires grad raise, so forward gets copies.
        copies = [value.clone() if _is_tensor(value) else value for value in inputs]
        versions = [buffer._version for buffer in model.buffers()]
        output = model(*copies)
        changes_buffers = versions != [buffer._version for buffer in model.buffers()]
        if any(copy._version for copy in copies if _is_tensor(copy)):
            raise ProblemError("--backward: forward writes to its inputs")
        paths: list[str] = []
        outputs: list[torch.Tensor] = []
        output_positions: list[int] = []
        for position, (path, value) in enumerate(_leaves(output, "output")):
            if _has_gradient(value):
                paths.append(path)
                outputs.append(value)
                output_positions.append(position)
        if not outputs:
            raise ProblemError("--backward: no output of the reference has a gradient")
        names = _argument_names(model, len(inputs))
        input_names: list[str] = []
        differentiated: list[torch.Tensor] = []
        for name, value in zip(names, inputs, strict=True):
            if _is_floating(value):
                input_names.append(name)
                differentiated.append(value)
        weight_positions: dict[str, int] = {}
        for position, (name, weight) in enumerate(model.named_parameters()):
            if weight.requires_grad:
                weight_positions[name] = position
                differentiated.append(weight)
        ones = list(map(torch.ones_like, outputs))
        gradients = torch.autograd.grad(outputs, differentiated, ones, allow_unused=True)
        reached_weights = _with_gradient(weight_positions, gradients[len(input_names) :])
        facts = GradientFacts(
            arguments=tuple(names),
            inputs=_with_gradient(input_names, gradients[: len(input_names)]),
            weights=reached_weights,
            weight_positions=tuple(weight_positions[name] for name in reached_weights),
            outputs=tuple(paths),
            output_positions=tuple(output_positions),
            changes_buffers=changes_buffers,
        )
        difference = _difference(reference, facts)
    return facts.model_copy(update={"difference": difference}).model_dump(mode="json")


def _difference(reference: Reference, facts: GradientFacts) -> float | None:
    """Returns the largest relative difference between derivatives by autograd and central differences in float64.

    Each derivative is that of a random combination of the outputs along a random direction of inputs and weights.
    """
    import torch

    from kernelwright.tools.references.models.float64 import model_in_float64

    try:
        model = model_in_float64(reference.model(GRADIENT_SEED))
        arguments = [
            v.double() if _is_floating(v) else v
            for v in reference.arguments(reference.inputs(GRADIENT_SEED))
        ]
        state = {name: buffer.clone() for name, buffer in model.named_buffers()}
        inputs = dict(zip(facts.arguments, arguments, strict=True))
        leaves = [inputs[name] for name in facts.inputs]
        leaves += [model.get_parameter(name) for name in facts.weights]
        bases = [leaf.detach().clone() for leaf in leaves]

        def outputs() -> list[torch.Tensor]:
            model.load_state_dict(state, strict=False)
            output = model(
                *[value.clone() if _is_floating(value) else value for value in arguments]
            )
            return [value for path, value in _leaves(output, "output") if path in facts.outputs]

        for leaf in leaves:
            leaf.requires_grad_()
        results = outputs()
        combination = [torch.randn_like(value) for value in results]
        gradients = torch.autograd.grad(results, leaves, combination)
        largest = 0.0
        for _ in range(DIRECTIONS):
            directions = [torch.randn_like(base) for base in bases]
            sums: list[float] = []
            with torch.no_grad():
                for step in (STEP, -STEP):
                    for leaf, base, direction in zip(leaves, bases, directions, strict=True):
                        leaf.copy_(base + step * direction)
                    sums.append(_inner_product(outputs(), combination))
            derivative = _inner_product(gradients, directions)
            scale = sum(
                float((g * d).abs().sum()) for g, d in zip(gradients, directions, strict=True)
            )
            numeric = (sums[0] - sums[1]) / (2 * STEP)
            largest = max(largest, abs(derivative - numeric) / max(scale, 1e-30))
    # A reference may hold constants of another dtype, or call operators without float64.
    except (RuntimeError, TypeError, NotImplementedError):
        return None
    return largest


def _inner_product(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> float:
    return sum(float((a * b).sum()) for a, b in zip(first, second, strict=True))


def _argument_names(model: torch.nn.Module, count: int) -> list[str]:
    """Returns the names of the first arguments of forward; `more_0` for those of `*more`."""
    names: list[str] = []
    for parameter in inspect.signature(model.forward).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}_{index}" for index in range(count - len(names))]
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            names.append(parameter.name)
    return names[:count]


def _leaves(value: object, path: str) -> Iterator[tuple[str, Any]]:
    """Yields the tensors of an output with their expressions, in the order of pytrees."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    elif _is_tensor(value):
        yield path, value


def _with_gradient(
    names: Iterable[str], gradients: Sequence[torch.Tensor | None]
) -> tuple[str, ...]:
    """Returns the names whose gradient exists: None means the outputs do not depend on the tensor."""
    reached: list[str] = []
    for name, gradient in zip(names, gradients, strict=True):
        if gradient is not None:
            reached.append(name)
    return tuple(reached)


def _leaf(value: Any) -> Any:
    return value.detach().requires_grad_() if _is_floating(value) else value


def _has_gradient(value: Any) -> bool:
    return _is_floating(value) and bool(value.requires_grad)


def _is_floating(value: Any) -> bool:
    return _is_tensor(value) and bool(value.is_floating_point())


def _is_tensor(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor)
