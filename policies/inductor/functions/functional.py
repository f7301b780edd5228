"""Functions of torch whose C++ wants numbers for sizes, or a real device, written with operators on symbols."""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.functions.indexing import (
    get_item,
    parting_functions,
    repeat_interleave,
    set_item,
    unfold,
)
from kernelwright.policies.inductor.refusing import DROPOUT_ADVICE, DraftRefused

if TYPE_CHECKING:
    import torch


def replace_functions() -> None:
    """Puts them in the place of torch's own, for the rest of this process."""
    import torch.nn.functional as functional

    from kernelwright.policies.inductor.tracing.numbers import Real

    for name, function in _functions_of_modules().items():
        setattr(functional, name, with_names_of_torch(function))
    functional.float = Real  # type: ignore[attr-defined]
    for name in DROPOUT:
        setattr(functional, name, _dropout(name))
    for owner, name, function in [*_functions_of_torch(), *_functions_and_methods()]:
        setattr(owner, name, with_names_of_torch(function))


def _functions_of_modules() -> dict[str, Any]:
    """Returns the functions of torch.nn.functional by their names."""
    import torch.nn.functional as functional

    from kernelwright.policies.inductor.functions.embedding_bags import embedding_bag
    from kernelwright.policies.inductor.functions.interpolation import (
        interpolation,
        pixel_shuffle,
        pixel_unshuffle,
    )
    from kernelwright.policies.inductor.functions.linear_layer import linear
    from kernelwright.policies.inductor.functions.operators.attention import (
        scaled_dot_product_attention,
    )
    from kernelwright.policies.inductor.functions.operators.losses import loss_functions
    from kernelwright.policies.inductor.functions.operators.multi_head_attention import (
        multi_head_attention,
    )
    from kernelwright.policies.inductor.functions.pooling import pooling_functions, whole_windows
    from kernelwright.policies.inductor.functions.sampling import grid_sampling

    replacements = {
        "group_norm": group_norm, "scaled_dot_product_attention": scaled_dot_product_attention,
        "instance_norm": instance_norm,
        "pixel_shuffle": pixel_shuffle, "pixel_unshuffle": pixel_unshuffle, "one_hot": one_hot, "linear": linear,
        "bilinear": bilinear, "conv1d": conv1d, "glu": glu, "embedding_bag": embedding_bag,
        "interpolate": interpolation(functional.interpolate), "upsample": interpolation(functional.interpolate),
        "grid_sample": grid_sampling(functional.grid_sample),
        "multi_head_attention_forward": multi_head_attention(functional.multi_head_attention_forward),
    }  # fmt: skip
    return replacements | loss_functions() | pooling_functions() | whole_windows(max_pool1d)


def _functions_of_torch() -> list[tuple[Any, str, Any]]:
    """Returns owner, name and function of functions outside of torch.Tensor."""
    import torch

    from kernelwright.policies.inductor.functions.operators.products import kron, tensordot
    from kernelwright.policies.inductor.functions.recurrent import recurrent_functions
    from kernelwright.policies.inductor.functions.statistics import statistics_functions
    from kernelwright.policies.inductor.tracing.loop_running import cat, stack
    from kernelwright.policies.inductor.tracing.numbers import tensor_of
    from kernelwright.policies.inductor.tracing.randomness import factories_without_generator

    weight_norm_owners = (torch, sys.modules["torch.nn.utils.weight_norm"])
    return [
        (torch, "group_norm", _group_norm_of_torch),
        *((torch._VF, name, function) for name, function in recurrent_functions().items()),
        *((torch, f.__name__, f) for f in (stack, cat, cdist, polar, kron, tensordot)),
        (torch, "complex", complex_of),
        *(
            (owner, f.__name__, f)
            for owner in weight_norm_owners
            for f in (norm_except_dim, _weight_norm)
        ),
        (torch.nn.modules.transformer, "_detect_is_causal_mask", asks_for_a_causal_mask),
        *((torch, name, tensor_of(getattr(torch, name))) for name in ("tensor", "as_tensor")),
        (torch, "linspace", _linspace(torch.linspace)),
        *((torch, name, function) for name, function in statistics_functions().items()),
        *((torch, name, function) for name, function in factories_without_generator()),
    ]


def _functions_and_methods() -> list[tuple[Any, str, Any]]:
    """Returns owner, name and function of methods of tensors, and of the functions with their names."""
    import torch

    from kernelwright.policies.inductor.functions.ranking import ordering_functions
    from kernelwright.policies.inductor.functions.statistics import histc
    from kernelwright.policies.inductor.functions.tensor_methods import (
        take_along_dim,
        tensor_methods,
    )

    both = [*parting_functions(), *ordering_functions().items()]
    both += [(f.__name__, f) for f in (repeat_interleave, bincount, histc, take_along_dim)]
    methods = [
        ("__getitem__", get_item),
        ("__setitem__", set_item),
        ("unfold", unfold),
        *tensor_methods(),
    ]
    return [
        *((torch.Tensor, name, function) for name, function in methods),
        *((owner, name, function) for owner in (torch, torch.Tensor) for name, function in both),
    ]


DROPOUT = {"dropout": True, "dropout1d": True, "dropout2d": True, "dropout3d": True, "alpha_dropout": False,
           "feature_alpha_dropout": False}  # fmt: skip
"""Dropout functions of torch.nn.functional -> their default for `training`."""
ARGUMENT_POSITIONS = {
    "input": 0,
    "tensor": 0,
    "self": 0,
    "input1": 0,
    "x1": 0,
    "input2": 1,
    "x2": 1,
}
"""Positions of the first arguments of torch's functions, by their names."""


def with_names_of_torch(function: Callable[..., Any]) -> Any:
    """The function, which may be called with torch's names for its first arguments (`linear(input=x, weight=w)`)."""
    names = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        for name in ARGUMENT_POSITIONS.keys() & named.keys() - set(names):
            named[names[ARGUMENT_POSITIONS[name]]] = named.pop(name)
        return function(*args, **named)

    return called


def _dropout(name: str) -> Any:
    def dropout(
        input: torch.Tensor, p: float = 0.5, training: bool = DROPOUT[name], inplace: bool = False
    ) -> Any:
        if training and p:
            raise DraftRefused(
                f"{name} in training mode draws random numbers", advice=DROPOUT_ADVICE
            )
        return input

    return dropout


def max_pool1d(
    x: torch.Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Pools over one axis by a two-dimensional pooling whose first axis has length one."""
    import torch

    def wide(leading: int, value: int | Sequence[int]) -> tuple[int, Any]:
        return (leading, value[0] if isinstance(value, tuple | list) else value)

    windows = (
        wide(1, kernel_size),
        wide(1, stride or kernel_size),
        wide(0, padding),
        wide(1, dilation),
    )
    if return_indices:
        values, indices = torch.nn.functional.max_pool2d(
            x.unsqueeze(-2), *windows, ceil_mode, return_indices=True
        )
        return values.squeeze(-2), indices.squeeze(-2)
    return torch.max_pool2d(x.unsqueeze(-2), *windows, ceil_mode).squeeze(-2)


def group_norm(
    x: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    """Writes `torch.nn.functional.group_norm` as means and variances over the channels of a group."""
    import torch

    rows = x.reshape(x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:])
    variance, mean = torch.var_mean(rows, list(range(2, rows.dim())), correction=0, keepdim=True)
    normalized = ((rows - mean) * torch.rsqrt(variance + eps)).reshape(x.shape)
    return _scaled(normalized, weight, bias)


def _group_norm_of_torch(
    x: torch.Tensor,
    groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:
    return group_norm(x, groups, weight, bias, eps)


def _scaled(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> Any:
    """Times a weight and plus a bias for each channel."""
    wide = (-1, *[1] * (x.dim() - 2))
    x = x if weight is None else x * weight.view(wide)
    return x if bias is None else x + bias.view(wide)


def instance_norm(
    x: torch.Tensor,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Writes `torch.nn.functional.instance_norm` with elementary operators; updates given running
    statistics.
    """
    import torch

    if not use_input_stats:
        assert running_mean is not None
        assert running_var is not None
        wide = (1, -1, *[1] * (x.dim() - 2))
        normalized = (x - running_mean.view(wide)) * torch.rsqrt(running_var.view(wide) + eps)
        return _scaled(normalized, weight, bias)
    axes = list(range(2, x.dim()))
    variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    normalized = (x - mean) * torch.rsqrt(variance + eps)
    if running_mean is not None and running_var is not None:
        count = math.prod(x.shape[2:])
        running_mean.mul_(1 - momentum).add_(mean.mean(0).flatten() * momentum)
        running_var.mul_(1 - momentum).add_(
            (variance * count / (count - 1)).mean(0).flatten() * momentum
        )
    return _scaled(normalized, weight, bias)


def asks_for_a_causal_mask(
    mask: object, is_causal: bool | None = None, size: object = None
) -> bool:
    """Whether a layer of torch has a causal mask. torch's own looks at the mask's values for a shortcut;
    the mask itself is right either way.
    """
    return is_causal is True


def norm_except_dim(v: torch.Tensor, pow: int = 2, dim: int = 0) -> Any:
    """Returns the norm over all dimensions except `dim`; over all dimensions for -1."""
    import torch

    axes = [d for d in range(v.dim()) if d != dim]
    return torch.linalg.vector_norm(v, pow, axes if dim != -1 else None, keepdim=dim != -1)


def _weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> Any:
    return v * (g / norm_except_dim(v, 2, dim))


def cdist(
    left: torch.Tensor, right: torch.Tensor, p: float = 2.0, compute_mode: str | None = None
) -> Any:
    """Distances between all rows of two matrices."""
    import torch

    difference = (left.unsqueeze(-2) - right.unsqueeze(-3)).abs()
    if p == math.inf:
        return difference.amax(-1)
    if p == 0:
        return (difference != 0).to(left.dtype).sum(-1)
    if p == 1:
        return difference.sum(-1)
    return (
        torch.sqrt((difference * difference).sum(-1))
        if p == 2
        else (difference**p).sum(-1) ** (1 / p)
    )


def polar(abs: torch.Tensor, angle: torch.Tensor) -> Any:
    """Complex numbers of lengths and angles."""
    import torch

    return complex_of(abs * torch.cos(angle), abs * torch.sin(angle))


def complex_of(real: torch.Tensor, imag: torch.Tensor) -> Any:
    """Complex numbers of their parts; torch's own asks for sizes as numbers."""
    import torch

    return torch.view_as_complex(torch.stack([real, imag], -1))


def bilinear(
    left: torch.Tensor, right: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> Any:
    """Computes left[i] weight[o, i, j] right[j] by a product and a sum."""
    out, inner, outer = weight.shape
    rows = left.reshape(-1, inner) @ weight.permute(1, 0, 2).reshape(inner, out * outer)
    products = (rows.reshape(*left.shape[:-1], out, outer) * right.unsqueeze(-2)).sum(-1)
    return products if bias is None else products + bias


def bincount(x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> Any:
    """Counts the occurrences of each number below `minlength`; without a bound the size would depend on data."""
    import torch

    if isinstance(minlength, int) and minlength == 0:
        raise DraftRefused("bincount without minlength has a size that depends on data")
    matches = x.unsqueeze(-1) == torch.arange(minlength, device=x.device)
    if weights is None:
        return matches.to(torch.int64).sum(0)
    return torch.where(
        matches, weights.unsqueeze(-1), torch.zeros((), dtype=weights.dtype, device=x.device)
    ).sum(0)


def conv1d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Any:
    """Convolves a contiguous copy of the input, because torch asks a real device for the shapes
    of other inputs.

    If the number of groups equals the number of output channels, tracing merges the two sizes.
    """
    import torch

    if isinstance(groups, torch.SymInt) and groups == weight.shape[0]:
        groups = weight.shape[0]
    return torch.conv1d(x.contiguous(), weight, bias, stride, padding, dilation, groups)


def one_hot(x: torch.Tensor, num_classes: int = -1) -> Any:
    """Writes `torch.nn.functional.one_hot` as a comparison. Raises DraftRefused if the number of
    classes is unknown.
    """
    import torch

    if isinstance(num_classes, int) and num_classes < 0:
        raise DraftRefused("one_hot without num_classes has a size that depends on data")
    return (x.unsqueeze(-1) == torch.arange(num_classes, device=x.device)).to(torch.int64)


def glu(input: torch.Tensor, dim: int = -1) -> Any:
    """Writes `torch.nn.functional.glu` as the first half times the sigmoid of the second half."""
    half = input.shape[dim] // 2
    return input.narrow(dim, 0, half) * input.narrow(dim, half, half).sigmoid()


def _linspace(plain: Callable[..., Any]) -> Any:
    def linspace(
        start: float | torch.Tensor, end: float | torch.Tensor, steps: int, **options: Any
    ) -> Any:
        """Counts from both ends towards the middle, as torch's kernel does."""
        import torch

        if (
            not isinstance(steps, torch.SymInt)
            or isinstance(start, torch.Tensor)
            or isinstance(end, torch.Tensor)
        ):
            return plain(start, end, steps, **options)
        dtype = options.pop("dtype", None) or torch.get_default_dtype()
        if options.get("out") is not None:
            raise DraftRefused("linspace with out= has no kernel: assign its result")
        count: Any = steps
        position = torch.arange(count, dtype=dtype, device=options.get("device"))
        step = (end - start) / (steps - 1)
        return torch.where(
            position < steps // 2, start + step * position, end - step * (count - 1 - position)
        )

    return linspace
