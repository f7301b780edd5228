"""Matches the weights of a reference with a candidate's tensors by name, order or value, and
decides about weights without a match.

Weights are the parameters, the running statistics of normalisations, and buffers drawn anew by
each seed. Buffers equal for every seed (masks, tables) are constants of the problem: a candidate
may compute them itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.tools.expected.prepared_problem import ExpectedOutputs, PreparedProblem, run_on
from kernelwright.tools.numerics.bits import same_bits
from kernelwright.tools.references.magnitudes import perturb_weights, running_statistics
from kernelwright.tools.references.redrawing.matrix_structures import (
    STRUCTURE_COUNT,
    STRUCTURES_APART,
    draw_structures,
)
from kernelwright.tools.report import Failed, Failure, Fault

if TYPE_CHECKING:
    import torch

MAX_NAMED_WEIGHTS = 3
"""Weights that a message names."""
MAX_PLACEMENTS = 64
"""Ways to lay a weight into a larger tensor that are tried."""
MAX_SEARCHED_ELEMENTS = 1 << 28
"""Maximum number of elements searched for weights inside larger tensors, per candidate and size."""
WEIGHT_SCALES = (2.0**-12, 2.0**12)
"""Factors of all weights at once: halves of them are subnormal, or infinite, in sixteen bits."""
Shape = tuple[tuple[int, ...], str]


def weights_of(prepared: PreparedProblem) -> dict[str, torch.Tensor]:
    """Returns the reference's nonempty weights by name; tied weights by their first name."""
    model = prepared.model
    parameters = {n: p.detach() for n, p in model.named_parameters() if p.numel()}
    buffers = dict(model.named_buffers())
    return (
        parameters
        | running_statistics(model)
        | {name: buffers[name] for name in prepared.other_buffers}
    )


def perturbed_model(prepared: PreparedProblem, seed: int) -> Any:
    """Returns the reference with weights moved away from their initialisation."""
    model = prepared.reference.model(prepared.weights_seed)
    perturb_weights(model, seed, prepared.other_buffers)
    return model


def structured_model(prepared: PreparedProblem, seed: int, part: int) -> Any:
    """Returns the reference with structured weight matrices, or with all weights smaller or larger.

    part: number of the structure; numbers after the last select WEIGHT_SCALES.
    """
    import torch

    model = perturbed_model(prepared, seed)
    with torch.no_grad():
        parameters = [p.detach() for p in model.parameters() if p.is_floating_point()]
        if part < STRUCTURE_COUNT:
            draw_structures(parameters, part + STRUCTURES_APART, are_weights=True)
        for parameter in parameters if part >= STRUCTURE_COUNT else ():
            parameter.mul_(WEIGHT_SCALES[part - STRUCTURE_COUNT])
    return model


# -------------------------------------------------------------- by name and by order
def match_by_name(model: torch.nn.Module, listed: object) -> dict[str, str]:
    """Returns a map from the candidate's to the reference's names, for equal name, shape and
    dtype; tied weights by each of their names.
    """
    candidates = _listed(listed)
    named = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    shapes = {name: _shape(tensor) for name, tensor in named}
    return {name: name for name, (_, shape) in candidates.items() if shapes.get(name) == shape}


def match_by_order(model: torch.nn.Module, listed: object) -> dict[str, str]:
    """Returns a map from the candidate's to the reference's names of all parameters, in order;
    empty if the sequences of shapes differ.
    """
    parameters = {n: _shape(p) for n, p in model.named_parameters() if p.numel()}
    candidates = [
        (name, shape) for name, (kind, shape) in _listed(listed).items() if kind == "parameter"
    ]
    if [shape for _, shape in candidates] != list(parameters.values()):
        return {}
    return {name: reference for (name, _), reference in zip(candidates, parameters, strict=True)}


def _shape(tensor: torch.Tensor) -> Shape:
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")


def _listed(listed: object) -> dict[str, tuple[str, Shape]]:
    """Returns the candidate's own list of weights, without entries of another form, which then match nothing."""
    entries: dict[str, tuple[str, Shape]] = {}
    for entry in listed if isinstance(listed, list) else []:
        try:
            shape = tuple(int(n) for n in entry["shape"]), str(entry["dtype"])
            entries[str(entry["name"])] = str(entry["kind"]), shape
        except (KeyError, TypeError, ValueError):
            continue
    return entries


# -------------------------------------------------------------- by value
class Position(NamedTuple):
    """Position of a weight's values: a tensor by its number, and the slice of its elements."""

    tensor: int
    stride: tuple[int, ...] = ()
    offset: int = 0
    """Elements of the tensor, which is contiguous, before the part."""
    whole: bool = True
    """The tensor has the shape of the weight, and is all of it."""


def find_values(
    weights: Mapping[str, torch.Tensor],
    tensors: Mapping[int, torch.Tensor],
    preferred: Collection[int] = (),
) -> dict[str, Position]:
    """Finds weights in tensors, bit for bit, each in another tensor or part of a tensor.

    Equal shapes are tried first, then parts of larger tensors. A weight of a single constant
    (ones, zeros) matches tensors of its own shape only, in order. preferred: numbers of the
    tensors to try first.
    """
    order = [
        *(n for n in preferred if n in tensors),
        *(n for n in sorted(tensors) if n not in preferred),
    ]
    positions: dict[str, Position] = {}
    for name, weight in weights.items():
        matched = {position.tensor for position in positions.values()}
        same = (n for n in order if n not in matched and same_bits(tensors[n], weight))
        if (number := next(same, None)) is not None:
            positions[name] = Position(number)
    budget = MAX_SEARCHED_ELEMENTS
    for name, weight in weights.items():
        if name in positions or _is_constant(weight):
            continue
        whole = {position.tensor for position in positions.values() if position.whole}
        for number in (n for n in order if n not in whole and _may_hold(tensors[n], weight)):
            budget -= tensors[number].numel()
            if budget < 0:
                return positions
            if (position := _part_that_holds(number, tensors[number], weight)) is not None:
                positions[name] = position
                break
    return positions


def _is_constant(weight: torch.Tensor) -> bool:
    flat = weight.reshape(-1)
    return weight.numel() > 1 and bool((flat == flat[0]).all())


def _may_hold(tensor: torch.Tensor, weight: torch.Tensor) -> bool:
    return (
        tensor.dtype == weight.dtype and tensor.numel() >= weight.numel() and tensor.is_contiguous()
    )


def _part_that_holds(number: int, tensor: torch.Tensor, weight: torch.Tensor) -> Position | None:
    """Returns the strided part of a contiguous tensor that holds a weight, found by the places of
    single values.

    Example: of a weight of 2 x 3 in a tensor of 4 x 6, `weight[0, 0]` lies at place 8, `weight[1,
    0]` at 14 and `weight[0, 1]` at 9: offset 8, strides 6 and 1.
    """
    flat = tensor.reshape(-1)
    begins = _matching_starts(flat, weight[(0,) * weight.dim()])
    steps = [[0] if size == 1 else _matching_starts(flat, weight[_unit(axis, weight.dim())])
             for axis, size in enumerate(weight.shape)]  # fmt: skip
    placements = itertools.product(begins, *steps)
    for begin, *starts in itertools.islice(placements, MAX_PLACEMENTS):
        stride = tuple(
            index - begin if size > 1 else 1
            for index, size in zip(starts, weight.shape, strict=True)
        )
        if _holds(flat, weight, stride, begin):
            return Position(number, stride, begin, whole=False)
    return None


def _matching_starts(flat: torch.Tensor, value: torch.Tensor) -> list[int]:
    starts: list[int] = (flat == value).nonzero().reshape(-1)[:MAX_PLACEMENTS].tolist()
    return starts


def _unit(axis: int, dimensions: int) -> tuple[int, ...]:
    return tuple(int(i == axis) for i in range(dimensions))


def _holds(flat: torch.Tensor, weight: torch.Tensor, stride: tuple[int, ...], begin: int) -> bool:
    last = begin + sum((size - 1) * step for size, step in zip(weight.shape, stride, strict=True))
    if min(stride, default=1) < 1 or last >= flat.numel():
        return False
    return same_bits(flat[begin:].as_strided(weight.shape, stride), weight)


# -------------------------------------------------------------- by neither
def require_visible_weights(
    prepared: PreparedProblem, expected: ExpectedOutputs, missing: Collection[str]
) -> None:
    """Raises Failed if the reference's answer depends on weights which no tensor of the candidate
    holds: other values cannot be loaded, and their use cannot be observed.
    """
    if not missing or not _change_outputs(prepared, expected, missing):
        return
    named = ", ".join(list(missing)[:MAX_NAMED_WEIGHTS])
    message = (
        f"no tensor of ModelNew holds the reference's {named}, by name and shape, in the order of parameters or by "
        "value, so no other weights can be loaded: keep them under the reference's names, or draw them as it does"
    )
    raise Failed(Failure(fault=Fault.UNCHECKED, message=message))


def _change_outputs(
    prepared: PreparedProblem, expected: ExpectedOutputs, missing: Collection[str]
) -> bool:
    """Finds by experiment whether the reference's outputs change with those weights."""
    import torch

    model = prepared.reference.model(prepared.weights_seed)
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with torch.no_grad():
        for name in missing:
            weight, other = held[name], prepared.other_buffers.get(name)
            if other is None:
                steps = torch.linspace(0.5, 1.5, weight.numel(), device=weight.device)
                other = weight + steps.reshape(weight.shape).to(weight.dtype)
            weight.copy_(other)
    pairs = zip(run_on(prepared, expected, model, expected.inputs), expected.eager, strict=True)
    return any(isinstance(a, torch.Tensor) and _outputs_differ(a, b) for a, b in pairs)


def _outputs_differ(a: torch.Tensor, b: torch.Tensor) -> bool:
    import torch

    if not (a.is_floating_point() or a.is_complex()):
        return not torch.equal(a, b)
    return not torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True)
