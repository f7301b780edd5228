"""Shapes, strides and dtypes of the tensors of forward, by its names of sizes."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelwright.policies.inductor.tracing.graph import TracedModel
from kernelwright.policies.inductor.writing.launch import Host
from kernelwright.policies.inductor.writing.layouts import Layout, product_text, tuple_elements

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TensorForm:
    """Shape of a tensor in the names of forward, and its dtype."""

    shape: tuple[str, ...]
    dtype: str
    """Name of the dtype without `torch.`, such as `float32`."""


def forms_of_buffers(host: Host) -> dict[str, TensorForm]:
    """Returns the forms of the tensors that forward allocates, by name."""
    forms: dict[str, TensorForm] = {}
    for statement in host.steps:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            continue
        call = statement.value
        is_allocation = isinstance(call, ast.Call) and ast.unparse(call.func) in (
            "torch.empty",
            "torch.empty_strided",
        )
        if is_allocation and isinstance(call, ast.Call):
            dtypes = [ast.unparse(k.value) for k in call.keywords if k.arg == "dtype"]
            shape = tuple(tuple_elements(ast.unparse(call.args[0])))
            name = statement.targets[0].id
            forms[name] = TensorForm(shape, dtypes[0].removeprefix("torch.") if dtypes else "")
    return forms


def input_layouts(traced: TracedModel, names: dict[str, str]) -> dict[str, Layout]:
    """Returns sizes and strides of the inputs that forward makes contiguous."""
    layouts: dict[str, Layout] = {}
    for path, value in zip(traced.arguments, traced.flat, strict=True):
        if path in traced.contiguous:
            sizes = _sizes_in_words(value, names)
            strides = [product_text(sizes[i + 1 :]) for i in range(len(sizes))]
            layouts[path] = (sizes, tuple(strides))
    return layouts


def forms_of_arguments(traced: TracedModel, names: dict[str, str]) -> dict[str, TensorForm]:
    """Returns shapes and dtypes of the inputs and weights, by their expressions in forward."""
    forms: dict[str, TensorForm] = {}
    for path, value in zip(traced.arguments, traced.flat, strict=True):
        if hasattr(value, "dtype"):
            dtype = str(value.dtype).removeprefix("torch.")
            forms[path] = TensorForm(_sizes_in_words(value, names), dtype)
    return forms


def _sizes_in_words(value: torch.Tensor, names: dict[str, str]) -> tuple[str, ...]:
    """Returns the sizes of a traced tensor, with the names that symbols have in forward."""
    sizes = [str(getattr(getattr(n, "node", None), "expr", n)) for n in value.shape]
    return tuple(
        re.sub(r"\b[a-z]+\d+\b", lambda match: names.get(match[0], match[0]), size)
        for size in sizes
    )


def matrices_of(traced: TracedModel) -> set[str]:
    """Returns the expressions in forward of the weights with two axes and more of several elements."""
    matrices = set()
    for path, value in zip(traced.arguments, traced.flat, strict=True):
        # A symbolic size is several: comparing it would be a condition of the graph.
        axes = [size for size in getattr(value, "shape", ()) if type(size) is not int or size != 1]
        if path.startswith("self.") and len(axes) > 1:
            matrices.add(path)
    return matrices
