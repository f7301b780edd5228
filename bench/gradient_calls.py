"""Calls a kernel file with gradients and its reference, and prints "right" or the first difference as JSON.

TRITON_INTERPRET=1 python -m bench.gradient_calls KERNEL.py PROBLEM.py
"""

from __future__ import annotations

import copy
import json
import runpy
import sys
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from bench.interpreted_libdevice import install

MAX_ERROR = 16.0
"""Times the error of eager PyTorch against float64, beside TOLERANCE."""
TOLERANCE = 2e-5
"""Share of the largest number of a tensor."""


def outputs_and_gradients(model: torch.nn.Module, inputs: list[Any]) -> list[torch.Tensor]:
    """Returns outputs, gradients of inputs and weights, and buffers after the call."""
    leaves = [v.clone().requires_grad_() if _is_floating(v) else v for v in inputs]
    outputs = [value for value in tree_leaves(model(*leaves)) if _is_floating(value)]
    torch.manual_seed(3)
    weights = [torch.randn(value.shape).to(value) for value in outputs]
    total = sum((value * weight).sum() for value, weight in zip(outputs, weights, strict=True))
    wanted = [v for v in [*leaves, *model.parameters()] if _is_floating(v)]
    gradients = torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)
    return [value.detach() for value in [*outputs, *gradients, *model.buffers()]]


def compared(kernel: dict[str, Any], problem: dict[str, Any], device: str) -> str:
    """Returns "right", or the first difference."""
    torch.manual_seed(0)
    reference = problem["Model"](*problem["get_init_inputs"]()).to(device)
    module = kernel["ModelNew"](*problem["get_init_inputs"]()).to(device)
    module.load_state_dict(reference.state_dict())
    inputs = [v.to(device) if isinstance(v, torch.Tensor) else v for v in problem["get_inputs"]()]
    exact_inputs = [v.double() if _is_floating(v) else v for v in inputs]
    exact = outputs_and_gradients(copy.deepcopy(reference).double(), exact_inputs)
    eager = outputs_and_gradients(copy.deepcopy(reference), inputs)
    actual = outputs_and_gradients(module, inputs)
    for index, (right, plain, value) in enumerate(zip(exact, eager, actual, strict=True)):
        error = float((value.double() - right.double()).abs().max())
        allowed = MAX_ERROR * float((plain.double() - right.double()).abs().max())
        allowed = max(allowed, TOLERANCE * float(right.double().abs().max()))
        if (
            value.dtype != plain.dtype
            or value.shape != plain.shape
            or not error <= max(allowed, 1e-6)
        ):
            return f"tensor {index} differs by {error:.2g}, and {allowed:.2g} is allowed"
    return "right"


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def main() -> None:
    """Prints the outcome."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        install()
    kernel, problem = (runpy.run_path(path) for path in sys.argv[1:3])
    print(json.dumps(compared(kernel, problem, device)))


if __name__ == "__main__":
    main()
