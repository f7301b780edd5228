"""How much memory what a judge keeps for the next candidate takes."""

from __future__ import annotations

from typing import Any

from kernelwright.tools.references.prepared_problem import Expected


def nbytes_of(expected: Expected) -> int:
    """Bytes of a draw: inputs, eager's outputs and float64's."""
    tensors = (*expected.inputs, *expected.eager, *(expected.exact or ()))
    return sum(t.nbytes for t in tensors if hasattr(t, "nbytes"))


def weights_of(model: Any) -> int:
    """Bytes of a module's parameters and buffers."""
    return sum(t.nbytes for t in (*model.parameters(), *model.buffers()))
