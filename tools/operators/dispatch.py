"""Dispatch modes which avoid importing torch._dynamo (over a second) at the first operator, and
fast rules for results on meta tensors.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types

Mode = TypeVar("Mode", bound=type)
_SAME_TYPE = """
    abs add ceil clamp clamp_max clamp_min cos div elu erf exp exp2 expm1 floor gelu hardsigmoid hardswish hardtanh
    leaky_relu log log1p log2 maximum minimum mish mul neg reciprocal relu round rsqrt rsub sigmoid sign silu sin
    softplus sqrt sub tanh xlogy
"""
"""Elementwise operators whose results have the type of their floating operands."""
_COMPARISONS = "eq ge gt le lt ne"
_ALONG_AN_AXIS = "_log_softmax _safe_softmax _softmax cumsum"
_TRIANGLES = "tril triu"
_LOSSES = "mse_loss smooth_l1_loss"
_DRAWS = "rand randn"
_SETS: dict[str, Callable[..., bool]] = {
    "fill_": lambda value: True,
    "normal_": lambda mean=0.0, std=1.0: std >= 0,
    "uniform_": lambda low=0.0, high=1.0: low <= high,
    "zero_": lambda: True,
}
"""Operators which set a tensor's content and return it, with the number types which torch
accepts.
"""
_WRAPPED = ("f", "fn")
"""Names by which torch's wrappers refer to the wrapped function."""


def without_dynamo(cls: Mode) -> Mode:
    """Decorates a TorchDispatchMode class whose operators are never compiled. Newer torch wraps
    `__torch_dispatch__` so that dynamo skips it, and imports dynamo to do so.

    The wrapper is marked as if dynamo had been told already (torch/_compile.py,
    `_disable_dynamo`).
    """
    raw: Any = getattr(vars(cls).get("__torch_dispatch__"), "__wrapped__", None)
    if raw is not None:
        setattr(raw, "__dynamo_disable", raw)  # a name that the class body would mangle
    return cls


@functools.cache
def mark_as_skipped_by_dynamo() -> None:
    """Must be called before operators run on meta tensors. torch answers many of them by Python
    functions that dynamo skips, and the first of these imports dynamo to say so. They are marked
    as skipped, as in `without_dynamo`.
    """
    import torch
    from torch._decomp import global_decomposition_table

    skipping = torch._disable_dynamo(lambda: None).__code__
    tables: list[Mapping[Any, Any]] = [*global_decomposition_table.values()]
    tables += [
        vars(module) for module in (torch._refs, torch._refs.nn.functional, torch._refs.special)
    ]
    waiting: list[Any] = [function for table in tables for function in table.values()]
    visited = set()
    while waiting:
        function = waiting.pop()
        if not isinstance(function, FunctionType) or function in visited:
            continue
        visited.add(function)
        within = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        waiting += [cell.cell_contents for name, cell in within.items() if name in _WRAPPED]
        if function.__code__ is skipping:
            raw = within["fn"].cell_contents
            setattr(raw, "__dynamo_disable", raw)


MetaResult = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]
"""Function of an operator's arguments; returns the result without data, or None if torch must
compute it.
"""


@functools.cache
def meta_results() -> dict[Any, MetaResult]:
    """Returns, by operator, functions which make the operator's result on meta tensors in simple
    cases. torch itself runs its Python references for these operators, 0.1 to 1 ms per call
    (torch/_meta_registrations.py, `activate_meta`).
    """
    import torch

    aten = torch.ops.aten
    answers = dict.fromkeys((getattr(aten, name) for name in _SAME_TYPE.split()), _of_the_same_type)
    answers |= dict.fromkeys((getattr(aten, name) for name in _COMPARISONS.split()), _comparison)
    answers |= {
        getattr(aten, name): functools.partial(_set, fits=fits) for name, fits in _SETS.items()
    }
    answers |= dict.fromkeys(
        (getattr(aten, name) for name in _ALONG_AN_AXIS.split()), _along_an_axis
    )
    answers |= dict.fromkeys((getattr(aten, name) for name in _TRIANGLES.split()), _triangle)
    answers |= dict.fromkeys((getattr(aten, name) for name in _LOSSES.split()), _loss)
    answers |= {
        aten.native_layer_norm: _layer_norm,
        aten.native_group_norm: _group_norm,
        aten.addmm: _addmm,
    }
    answers[aten.stack] = _stack
    return answers | dict.fromkeys((getattr(aten, name) for name in _DRAWS.split()), _draw)


@functools.cache
def meta_results_mode() -> Any:
    """Returns a class of dispatch modes which answer operators on meta tensors quickly if
    possible.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    answers = meta_results()

    class QuickOperators(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
        ) -> Any:
            options = kwargs or {}
            answer = answers.get(func.overloadpacket)
            quick_result = None if answer is None else answer(tuple(args), options)
            return func(*args, **options) if quick_result is None else quick_result

    return without_dynamo(QuickOperators)


def _of_the_same_type(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    import torch

    shape, dtype = _plain(args, kwargs)
    return None if dtype is None else torch.empty(shape, dtype=dtype, device="meta")


def _comparison(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    import torch

    shape, dtype = _plain(args, kwargs)
    return None if dtype is None else torch.empty(shape, dtype=torch.bool, device="meta")


def _plain(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns shape and dtype of an elementwise operator's operands; no dtype unless they are
    plain.

    Plain are numbers, and meta tensors of the same floating type with axes in order, of one shape
    or broadcast along axes of one element. The result is then contiguous.
    """
    import torch

    shape = None
    dtype = None
    tensors = [argument for argument in args if isinstance(argument, torch.Tensor)]
    if any(isinstance(v, torch.Tensor | torch.dtype) for v in kwargs.values()):
        return None, None
    if not all(
        argument is None or isinstance(argument, torch.Tensor | bool | int | float | str)
        for argument in args
    ):
        return None, None
    for argument in tensors:
        if (
            type(argument) not in (torch.Tensor, torch.nn.Parameter)
            or argument.device.type != "meta"
        ):
            return None, None
        if (
            argument.dtype not in _arithmetic_types()
            or not _in_order(argument)
            or dtype not in (None, argument.dtype)
        ):
            return None, None
        shape, dtype = (
            argument.shape if shape is None or argument.dim() > len(shape) else shape,
            argument.dtype,
        )
    if shape is None or not all(_fits(tensor.shape, shape) for tensor in tensors):
        return None, None
    return shape, dtype


@functools.cache
def _arithmetic_types() -> tuple[Any, ...]:
    """Floating types of torch's arithmetic: eight-bit types are only converted."""
    import torch

    return torch.float32, torch.float16, torch.bfloat16, torch.float64


def _in_order(tensor: torch.Tensor) -> bool:
    """Whether every step along an axis is longer than those along the axes behind it."""
    if tensor.is_contiguous():
        return True
    steps = [step for extent, step in zip(tensor.shape, tensor.stride(), strict=True) if extent > 1]
    return all(steps) and all(step > other for step, other in itertools.pairwise(steps))


def _fits(shape: Sequence[int], whole: Sequence[int]) -> bool:
    """Returns whether the first shape broadcasts to the second."""
    if shape == whole:
        return True
    return len(shape) <= len(whole) and all(
        a in (1, b) for a, b in zip(reversed(shape), reversed(whole), strict=False)
    )


def _draw(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    import torch

    device, layout = kwargs.get("device"), kwargs.get("layout")
    if (
        len(args) != 1
        or "out" in kwargs
        or device is None
        or torch.device(device).type != "meta"
        or layout is not None
    ):
        return None
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    return torch.empty(args[0], dtype=dtype, device="meta") if dtype.is_floating_point else None


def _set(args: tuple[Any, ...], kwargs: Mapping[str, Any], *, fits: Callable[..., bool]) -> Any:
    """Returns the tensor itself, with values set by plain, fitting numbers."""
    import torch

    tensor, *numbers = args
    options = {name for name, value in kwargs.items() if value is not None} - {"generator"}
    if (
        options
        or not all(isinstance(number, bool | int | float) for number in numbers)
        or not fits(*numbers)
    ):
        return None
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type == "meta"
    return tensor if plain and tensor.dtype in _arithmetic_types() else None


def _of_single(*tensors: Any) -> bool:
    """Whether all are contiguous tensors of float32 without data, or None."""
    import torch

    return all(
        tensor is None
        or (
            type(tensor) in (torch.Tensor, torch.nn.Parameter)
            and tensor.device.type == "meta"
            and tensor.dtype is torch.float32
            and tensor.is_contiguous()
        )
        for tensor in tensors
    )


def _meta_tensors(*shapes: Any) -> Any:
    import torch

    results = [torch.empty(shape, dtype=torch.float32, device="meta") for shape in shapes]
    return results[0] if len(results) == 1 else tuple(results)


def _along_an_axis(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Of (tensor, axis): the tensor's own form."""
    tensor, axis, *options = args
    plain = any(options) is False and not any(value is not None for value in kwargs.values())
    fits = plain and _of_single(tensor) and -tensor.dim() <= axis < tensor.dim()
    return _meta_tensors(tensor.shape) if fits else None


def _triangle(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    import torch

    tensor = args[0]
    if kwargs or type(tensor) is not torch.Tensor or tensor.device.type != "meta":
        return None
    plain = tensor.dim() > 1 and tensor.is_contiguous()
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta") if plain else None


def _stack(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    tensors, axis = args[0], args[1] if len(args) > 1 else 0
    if (
        kwargs
        or not tensors
        or any(tensor is None for tensor in tensors)
        or not _of_single(*tensors)
    ):
        return None
    shape = tuple(tensors[0].shape)
    position = axis if axis >= 0 else axis + len(shape) + 1
    if any(tuple(tensor.shape) != shape for tensor in tensors) or not 0 <= position <= len(shape):
        return None
    return _meta_tensors((*shape[:position], len(tensors), *shape[position:]))


def _loss(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Of (tensor, target, reduction: 0 none, 1 mean, 2 sum)."""
    tensor, target, *options = args
    if kwargs or not _of_single(tensor, target) or tensor.shape != target.shape:
        return None
    return _meta_tensors(() if (options[0] if options else 1) else tensor.shape)


def _layer_norm(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The output, the means and the reciprocals of the deviations."""
    tensor, normalised, weight, bias, _ = args
    shape, count = tuple(tensor.shape), len(normalised)
    if (
        not _of_single(tensor, weight, bias)
        or not tensor.numel()
        or not count
        or shape[-count:] != tuple(normalised)
    ):
        return None
    if any(
        parameter is not None and tuple(parameter.shape) != tuple(normalised)
        for parameter in (weight, bias)
    ):
        return None
    rows = (*shape[:-count], *(1,) * count)
    return _meta_tensors(shape, rows, rows)


def _group_norm(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    tensor, weight, bias, count, channels, size, groups, _ = args
    if (
        not _of_single(tensor, weight, bias)
        or tensor.numel() != count * channels * size
        or not tensor.numel()
    ):
        return None
    if tuple(tensor.shape[:2]) != (count, channels) or channels % groups:
        return None
    if any(
        parameter is not None and tuple(parameter.shape) != (channels,)
        for parameter in (weight, bias)
    ):
        return None
    return _meta_tensors(tensor.shape, (count, groups), (count, groups))


def _addmm(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    bias, first, second = args
    if (
        kwargs
        or not _of_single(bias, first)
        or not _of_single(second if second.is_contiguous() else second.t())
    ):
        return None
    if first.dim() != 2 or second.dim() != 2 or first.shape[1] != second.shape[0]:
        return None
    shape = (first.shape[0], second.shape[1])
    return _meta_tensors(shape) if _fits(bias.shape, shape) else None
