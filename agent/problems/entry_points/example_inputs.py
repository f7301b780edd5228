"""Writes the example inputs of a live object as expressions that draw tensors of equal shape,
dtype and range.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.agent.problems.entry_points.option_values import NamedSizes, RebuiltArguments
from kernelwright.tools.problem import ProblemError

if TYPE_CHECKING:
    import torch


def read_examples(
    inputs: Sequence[Any] | Mapping[str, Any] | torch.Tensor, sizes: NamedSizes
) -> RebuiltArguments:
    """Returns the arguments of forward as expressions.

    Raises ProblemError for values that no expression can draw.
    """
    import torch

    if isinstance(inputs, torch.Tensor):
        inputs = [inputs]
    if isinstance(inputs, Mapping):
        return RebuiltArguments(
            [], {name: _expression(value, name, sizes) for name, value in inputs.items()}
        )
    names = [f"x{index or ''}" for index in range(len(inputs))]
    return RebuiltArguments(
        [_expression(value, name, sizes) for value, name in zip(inputs, names, strict=True)]
    )


def _expression(value: object, name: str, sizes: NamedSizes) -> str:
    """Returns an expression for a tensor, a plain value, or a container of these."""
    import torch

    if isinstance(value, torch.Tensor):
        return _draw(value, name, sizes)
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, Mapping):
        entries: list[str] = []
        for key, entry in value.items():
            entries.append(f"{key!r}: {_expression(entry, f'{name}_{key}', sizes)}")
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        elements: list[str] = []
        for index, element in enumerate(value):
            elements.append(_expression(element, f"{name}_{index}", sizes))
        listed = ", ".join(elements)
        return f"[{listed}]" if isinstance(value, list) else f"({listed},)"
    kind = "dataclass" if dataclasses.is_dataclass(value) else type(value).__name__
    raise ProblemError(
        f"the input {name} is a {kind}: give tensors, numbers, texts, and lists and dictionaries of them"
    )


def _draw(tensor: torch.Tensor, name: str, sizes: NamedSizes) -> str:
    """Returns an expression that draws a tensor with similar values: non-negative floats stay
    non-negative, integers stay in range.
    """
    import torch

    # Extents of 1 broadcast and must not vary, so they stay numbers.
    extents: list[str] = []
    for axis, extent in enumerate(tensor.shape):
        extents.append(sizes.named(f"{name}_{axis}", extent) if extent > 1 else str(extent))
    shape = f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"
    dtype = str(tensor.dtype)
    if tensor.dtype == torch.bool:
        return f"torch.rand({shape}) > 0.5"
    if not tensor.is_floating_point() and not tensor.is_complex():
        low, high = (int(tensor.min()), int(tensor.max()) + 1) if tensor.numel() else (0, 1)
        return f"torch.randint({low}, {high}, {shape}, dtype={dtype})"
    converted = "" if tensor.dtype == torch.float32 else f".to({dtype})"
    if tensor.is_complex():
        return f"torch.randn({shape}, dtype={dtype})"
    values = tensor.detach().float()
    if values.numel() and bool((values >= 0).all()):
        largest = float(values.max())
        scale = "" if largest <= 1 else f" * {largest:.6g}"
        draw = f"torch.rand({shape}){scale}"
        return f"({draw}){converted}" if scale and converted else f"{draw}{converted}"
    return f"torch.randn({shape}){converted}"
