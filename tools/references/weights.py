"""Which of the reference's weights each of a candidate's parameters is, and what is asked where that cannot be told.

Where a candidate's parameters match the reference's neither by name nor by order, no weights can be loaded: both are
drawn from one seed, and the candidate must have drawn the same to be right. Weights that are made constant (the ones
and zeros of a norm) tell nothing then: a candidate that leaves them out is right too.
"""

from __future__ import annotations

from typing import Any

from kernelwright.tools.references.prepared_problem import ExpectedOutputs, PreparedProblem, run_on
from kernelwright.tools.report import Failed, Failure, Fault

MAX_NAMED_WEIGHTS = 3
"""Weights that a message names."""
Shape = tuple[tuple[int, ...], str]


def match_weights(model: Any, listed: Any) -> dict[str, str] | None:
    """Candidate's name -> reference's name, for all of the reference's parameters (and buffers where the names agree).

    By name and shape, tied weights by each of their names; else parameters in their order where the sequences of shapes
    are equal; else None.
    """
    theirs = _listed(listed)
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    ours = {n: _shape(t) for n, t in named}
    parameters = [n for n, p in model.named_parameters() if p.numel()]
    by_name = {n: n for n, (_, shape) in theirs.items() if ours.get(n) == shape}
    if all(n in by_name for n in parameters):
        return by_name
    candidates = [(n, shape) for n, (kind, shape) in theirs.items() if kind == "parameter"]
    if [shape for _, shape in candidates] == [ours[n] for n in parameters]:
        return {n: ours_name for (n, _), ours_name in zip(candidates, parameters, strict=True)}
    return None


def _shape(tensor: Any) -> Shape:
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")


def _listed(listed: Any) -> dict[str, tuple[str, Shape]]:
    """Returns the candidate's own list of weights, without those of another form, which then do not match."""
    found: dict[str, tuple[str, Shape]] = {}
    for entry in listed if isinstance(listed, list) else []:
        try:
            found[str(entry["name"])] = (
                str(entry["kind"]),
                (tuple(int(n) for n in entry["shape"]), str(entry["dtype"])),
            )
        except (KeyError, TypeError, ValueError):
            continue
    return found


def require_visible_weights(prepared: PreparedProblem, expected: ExpectedOutputs) -> None:
    """Raises Failed where the reference's answer depends on parameters that are equal for every seed."""
    model = prepared.reference.model(prepared.weights_seed)
    other = dict(prepared.reference.model(prepared.weights_seed + 1).named_parameters())
    constant = {n: p for n, p in model.named_parameters() if p.numel() and _are_equal(p, other[n])}
    if not constant or not _change_outputs(prepared, expected, model, constant):
        return
    named = ", ".join(list(constant)[:MAX_NAMED_WEIGHTS])
    message = (
        "its parameters match the reference's neither by name and shape nor in their order, so no other weights can be "
        f"loaded, and the reference's {named} are constant when it is made: whether they are used cannot be seen"
    )
    raise Failed(Failure(fault=Fault.UNCHECKED, message=message))


def _are_equal(one: Any, other: Any) -> bool:
    import torch

    return torch.equal(one.detach(), other.detach())


def _change_outputs(prepared: PreparedProblem, expected: ExpectedOutputs, model: Any, constant: dict[str, Any]) -> bool:
    """Finds by experiment whether the reference's outputs change with those parameters."""
    import torch

    with torch.no_grad():
        for parameter in constant.values():
            steps = torch.linspace(0.5, 1.5, parameter.numel(), device=parameter.device)
            parameter.add_(steps.reshape(parameter.shape).to(parameter.dtype))
    pairs = zip(run_on(prepared, expected, model, expected.inputs), expected.eager, strict=True)
    return any(isinstance(a, torch.Tensor) and _outputs_differ(a, b) for a, b in pairs)


def _outputs_differ(a: Any, b: Any) -> bool:
    import torch

    if not (a.is_floating_point() or a.is_complex()):
        return not torch.equal(a, b)
    return not torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True)
