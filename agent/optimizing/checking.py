"""Compares a model with kernels to the unchanged model: outputs and gradients."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kernelwright.agent.optimizing.capture import call_model
from kernelwright.tools.report import Value

if TYPE_CHECKING:
    import torch

MAX_INTERPRETED_BYTES = 1 << 28
"""Maximum number of bytes moved by the kernels of a model under Triton's interpreter."""


class WholeCheck(Value):
    """Comparison of the whole model."""

    done: bool
    correct: bool = False
    largest_difference: float | None = None
    """Largest absolute difference to the unchanged model, over all outputs."""
    gradients: bool | None = None
    """Whether all gradients of weights are right; None if they were not asked for."""
    note: str = ""


def compare_models(
    model: torch.nn.Module, optimized: torch.nn.Module, inputs: Any, gradients: bool
) -> WholeCheck:
    """Returns the comparison by the judge's tolerance, against float64 if the model runs there."""
    import torch

    from kernelwright.tools.comparing.comparison import is_right

    with torch.no_grad():
        expected = _tensors(call_model(model, inputs))
        actual = _tensors(call_model(optimized, inputs))
        exact = _in_float64(model, inputs)
    correct = len(expected) == len(actual)
    largest = 0.0
    for index, (eager, candidate) in enumerate(zip(expected, actual, strict=False)):
        correct = correct and candidate.shape == eager.shape and candidate.dtype == eager.dtype
        if not correct:
            break
        wide = exact[index] if exact is not None else None
        correct = is_right(candidate, eager, wide)
        if eager.numel():
            largest = max(largest, float((candidate.double() - eager.double()).abs().max()))
    right_gradients = _gradients_agree(model, optimized, inputs) if gradients else None
    return WholeCheck(
        done=True, correct=correct, largest_difference=largest, gradients=right_gradients
    )


@contextlib.contextmanager
def interpreted(package: Path) -> Iterator[None]:
    """Runs the kernels of a package imported in this block in Triton's interpreter."""
    before = os.environ.get("TRITON_INTERPRET")
    os.environ["TRITON_INTERPRET"] = "1"
    changed = _interpreted_language()
    try:
        # The package's tests bring what the interpreter lacks.
        path = package / "tests" / "conftest.py"
        spec = importlib.util.spec_from_file_location("kernelwright_interpreted", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.pytest_configure()
        yield
    finally:
        for owner, name, function in changed:
            setattr(owner, name, function)
        if before is None:
            del os.environ["TRITON_INTERPRET"]
        else:
            os.environ["TRITON_INTERPRET"] = before


def _interpreted_language() -> list[tuple[ModuleType, str, object]]:
    """Replaces Triton's own functions, imported for a GPU by this process (`tl.sum`); returns the
    original functions.
    """
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    changed: list[tuple[ModuleType, str, object]] = []
    modules = [m for name, m in sys.modules.items() if name.startswith("triton.language")]
    for module in modules:
        for name, function in list(vars(module).items()):
            if isinstance(function, JITFunction):
                changed.append((module, name, function))
                setattr(module, name, InterpretedFunction(function.fn))
    return changed


def _in_float64(model: torch.nn.Module, inputs: Any) -> list[torch.Tensor] | None:
    """Returns the outputs in float64; None if the model cannot run in float64."""
    from torch.utils import _pytree

    def widened(value: Any) -> Any:
        is_tensor = hasattr(value, "is_floating_point") and value.is_floating_point()
        return value.double() if is_tensor else value

    try:
        wide = copy.deepcopy(model).double()
        return _tensors(call_model(wide, _pytree.tree_map(widened, inputs)))
    # A model may hold constants of another dtype, or no room for a second copy.
    except (RuntimeError, TypeError):
        return None


def _gradients_agree(model: torch.nn.Module, optimized: torch.nn.Module, inputs: Any) -> bool:
    import torch

    expected, actual = (_gradients(each, inputs) for each in (model, optimized))
    for eager, candidate in zip(expected, actual, strict=True):
        if (eager is None) != (candidate is None):
            return False
        if eager is not None and candidate is not None:
            tolerance = 100 * torch.finfo(eager.dtype).eps * float(eager.abs().max())
            if not torch.allclose(eager, candidate, rtol=0.0, atol=tolerance):
                return False
    return True


def _gradients(model: torch.nn.Module, inputs: Any) -> Sequence[torch.Tensor | None]:
    import torch

    weights = [weight for weight in model.parameters() if weight.requires_grad]
    with torch.enable_grad():
        outputs = [o for o in _tensors(call_model(model, inputs)) if o.requires_grad]
        total = sum((o.float().sum() for o in outputs), torch.zeros((), device=outputs[0].device))
        return torch.autograd.grad(total, weights, allow_unused=True)


def _tensors(outputs: object) -> list[torch.Tensor]:
    import torch
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
