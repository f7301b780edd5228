"""Runs the reference's forward pass in another arithmetic: float64, or convolutions in tf32.

In float64, random numbers included: numbers which a model draws or creates are drawn in their own
precision first, then widened. A dropout mask drawn in float64 would be another mask, and eager's
"error" against it would excuse any answer.

In tf32: torch permits cuDNN to use tf32 by default (`torch.backends.cudnn.allow_tf32`), and cuDNN
does so at some sizes only: if the channels do not suit its tensor-core kernels, it multiplies in
fp32. A candidate with a convolution in tf32, by the same library or by `tl.dot`, is as exact as
the problem's own arithmetic may be at these sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernelwright.tools.numerics.pieces import pieces, raise_to_distance

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types

TF32_DROPPED_BITS = 13
"""Bits of fp32's mantissa that tf32 drops: tensor cores read an operand's upper 19 bits (PTX ISA,
wgmma and mma with .tf32).
"""
CHANCE_SEED = 1910
MAX_RELATIVE_ERROR = 0.05
"""Of eager's rows, in draws up to the limits of the reference's own arithmetic."""
FLOAT64_MEMORY_DIVISOR = 16
"""Inputs and outputs of more than this part of a GPU's memory are not computed in float64."""


def is_too_large_for_float64(device: str, tensors: list[Any]) -> bool:
    """Returns True if these tensors in float64, with intermediate results, would take most of a
    GPU's memory."""
    import torch

    if device == "cpu":
        return False
    held = sum(t.nbytes for t in tensors if isinstance(t, torch.Tensor))
    return bool(held > torch.cuda.mem_get_info(device)[1] // FLOAT64_MEMORY_DIVISOR)


def is_accurate(eager: list[Any], exact: list[Any] | None) -> bool:
    """Returns whether eager's floating outputs agree with float64's up to MAX_RELATIVE_ERROR of
    each row's largest number: an intermediate overflow may leave them finite and far off. True
    without float64.
    """
    import torch

    for rounded, wide in zip(eager, exact or (), strict=False):
        if (
            not isinstance(rounded, torch.Tensor)
            or not rounded.is_floating_point()
            or not rounded.numel()
        ):
            continue
        error, size = (rounded.double() - wide.double()).abs(), wide.double().abs()
        rows = (t.amax(-1) if t.dim() else t for t in (error, size))
        largest_error, largest = rows
        if bool((largest_error > MAX_RELATIVE_ERROR * largest).any()):
            return False
    return True


def widen_attributes(model: torch.nn.Module) -> None:
    """Widens floating tensors which modules hold as plain attributes, such as an initial state
    that is no buffer.
    """
    import torch

    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                setattr(module, name, value.double())


def draws_in_float32() -> Any:
    """A mode in which tensors created by a forward pass are made in float32 and
    widened, and dropout takes float32's mask.
    """
    return _widening()()


@functools.cache
def _widening() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    class Widening(TorchFunctionMode):
        def __torch_function__(
            self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
        ) -> Any:
            named = dict(kwargs or {})
            tensors = [a for a in [*args, *named.values()] if isinstance(a, torch.Tensor)]
            name = getattr(func, "__name__", "")
            if (
                name in ("dropout", "dropout1d", "dropout2d", "dropout3d")
                and tensors
                and tensors[0].dtype == torch.float64
            ):
                return tensors[0] * _dropout_mask(func, tensors[0], args, named).double()
            if (
                name.endswith("_like")
                and tensors
                and tensors[0].dtype == torch.float64
                and "dtype" not in named
            ):
                return func(args[0].float(), *args[1:], **named).double()
            out = func(*args, **named)
            creates_float32 = (
                isinstance(out, torch.Tensor) and not tensors and out.dtype == torch.float32
            )
            return out.double() if creates_float32 else out

    return Widening


def _dropout_mask(
    func: OpOverload, tensor: torch.Tensor, args: Sequence[Any], named: dict[str, Any]
) -> Any:
    import torch

    options = {k: v for k, v in named.items() if k not in ("input", "inplace")}
    positional = [a for a in args[1:3] if not isinstance(a, torch.Tensor)]
    return func(torch.ones_like(tensor, dtype=torch.float32), *positional, **options)


def errors_of_tf32_convolutions(
    run: Callable[[], list[Any]], exact: list[Any] | None
) -> list[Any] | None:
    """Returns the error of each floating output of `run` with convolutions in tf32, None for
    other outputs; None altogether without fp32 convolutions, or if
    `torch.backends.cudnn.allow_tf32` is off.

    Takes the larger error of two runs: operands truncated, as in tensor cores, and operands
    rounded up or down at random. Truncation shifts all elements alike, which a following norm
    removes; an algorithm that transforms its operands first (Winograd's) has errors that vary by
    position.

    exact: outputs in float64; without them, the outputs of `run` without tf32.
    """
    import torch

    if (cut := with_tf32_convolutions(run, _truncate_to_tf32)) is None:
        return None
    if exact is None:
        with torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, allow_tf32=False):
            exact = run()
    errors = _distances(cut, exact)
    by_chance = with_tf32_convolutions(run, _round_to_tf32_by_chance) or list(exact)
    for error, other, plain in zip(errors, by_chance, exact, strict=True):
        if error is not None:
            raise_to_distance(error, other, plain)
    return errors


def _distances(outputs: list[Any], exact: list[Any]) -> list[Any]:
    """Returns the distance of each floating output, in its own type or float32; None for others.

    `outputs` is emptied: outputs of gigabytes are held no longer than they are needed.
    """
    import torch

    distances: list[Any] = []
    for index, plain in enumerate(exact):
        output, outputs[index] = outputs[index], None
        if not isinstance(output, torch.Tensor) or not output.is_floating_point():
            distances.append(None)
            continue
        wide = torch.promote_types(output.dtype, torch.float32)
        distances.append(
            torch.empty_like(output, dtype=wide, memory_format=torch.contiguous_format)
        )
        for gap, approximate, right in pieces(distances[-1], output, plain):
            gap.copy_((approximate - right).abs_())
    return distances


def with_tf32_convolutions(
    run: Callable[[], list[Any]], as_tf32: Callable[[Any], Any]
) -> list[Any] | None:
    """Returns the outputs of `run` with every fp32 convolution multiplying operands converted by
    `as_tf32` and adding in fp32; None without such a convolution, or if
    `torch.backends.cudnn.allow_tf32` is off.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from kernelwright.tools.operators.dispatch import without_dynamo

    convolutions = (torch.ops.aten.convolution, torch.ops.aten._convolution)

    @without_dynamo
    class Cutting(TorchDispatchMode):
        cut = 0

        def __torch_dispatch__(
            self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
        ) -> Any:
            single = func.overloadpacket in convolutions and args[0].dtype == torch.float32
            single = single and torch.backends.cudnn.allow_tf32  # as it is where the reference runs
            if single:
                self.cut += 1
                args = (as_tf32(args[0]), as_tf32(args[1]), *args[2:])
            return func(*args, **(kwargs or {}))

    mode = Cutting()
    with mode:
        result = run()
    return result if mode.cut else None


def _truncate_to_tf32(tensor: torch.Tensor) -> Any:
    import torch

    return (tensor.contiguous().view(torch.int32) & -(1 << TF32_DROPPED_BITS)).view(torch.float32)


def _round_to_tf32_by_chance(tensor: torch.Tensor) -> Any:
    """Rounds to a neighbouring tf32 number, the nearer with higher probability; infinities and
    NaN stay. Deterministic: a candidate judged twice meets the same tolerance.
    """
    import torch

    rng = torch.Generator(tensor.device).manual_seed(CHANCE_SEED)
    rounded = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    for out, piece in pieces(rounded, tensor):
        below = torch.randint(
            1 << TF32_DROPPED_BITS,
            piece.shape,
            generator=rng,
            device=piece.device,
            dtype=torch.int32,
        )
        whole = piece.contiguous()
        moved = (below.add_(whole.view(torch.int32)).bitwise_and_(-(1 << TF32_DROPPED_BITS))).view(
            torch.float32
        )
        out.copy_(torch.where(whole.isfinite() & moved.isfinite(), moved, whole))
    return rounded
