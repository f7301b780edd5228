"""Functions in the form common in kernels, by exp and log: `log(1 + exp(x))` for softplus.

Far from zero such a form yields 0 where torch's own, by log1p, still has digits; for an infinity it
may yield NaN. The reference is run in these forms to measure their errors and failures.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types


@functools.cache
def forms_by_name() -> dict[str, Callable[..., Any]]:
    """Returns the usual forms of functions by operator name; each takes the operator's operands by
    position."""
    import torch

    return {
        "elu": _elu,
        "lerp": lambda a, b, weight: a * (1 - weight) + b * weight,
        "log1p": lambda x: torch.log(1 + x),
        "expm1": lambda x: torch.exp(x) - 1,
        "softplus": _softplus,
        "mish": lambda x: x * torch.tanh(_softplus(x)),
        "tanh": lambda x: (torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1),
        "log_sigmoid_forward": lambda x: (torch.log(torch.sigmoid(x)), torch.zeros_like(x)),
    }


@functools.cache
def _finite_forms() -> dict[str, Callable[..., Any]]:
    """Returns forms with an answer for every number, where the usual ones fail for large numbers."""
    return {"tanh": _finite_tanh, "mish": lambda x: x * _finite_tanh(_softplus(x))}


def finite_form(
    func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> Callable[..., Any] | None:
    """Returns the usual form of an operator, or one that is finite for every number; None without
    one."""
    form = _finite_forms().get(func.overloadpacket.__name__)
    return form if form is not None and not kwargs else usual_form(func, args, kwargs)


def usual_form(
    func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> Callable[..., Any] | None:
    """Returns the usual form of an operator for these arguments; None without one."""
    form = forms_by_name().get(func.overloadpacket.__name__)
    return None if form is None or kwargs or not args[0].is_floating_point() else form


def usual_forms() -> Any:
    """Returns a mode in which functions of torch are computed by exp and log, and whose `seen`
    counts the calls."""
    from torch.utils._python_dispatch import TorchDispatchMode

    from kernelwright.tools.operators.dispatch import without_dynamo

    @without_dynamo
    class Usual(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(
            self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
        ) -> Any:
            form = usual_form(func, args, kwargs)
            if form is None:
                return func(*args, **(kwargs or {}))
            self.seen += 1
            return form(*args)

    return Usual()


def _finite_tanh(x: torch.Tensor) -> Any:
    import torch

    return 1 - 2 / (torch.exp(2 * x) + 1)


def _softplus(x: torch.Tensor, beta: float = 1.0, threshold: float = 20.0) -> Any:
    import torch

    return torch.where(x * beta > threshold, x, torch.log(1 + torch.exp(x * beta)) / beta)


def _elu(x: torch.Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    import torch

    return torch.where(x > 0, x * scale, (torch.exp(x * input_scale) - 1) * alpha * scale)
