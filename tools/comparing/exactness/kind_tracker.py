"""Determines the kind of each output of a reference (arithmetic_kinds.py) from its operators.

Tracked by storage in a single run of the reference: in-place operators and views write to the
storage of their operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.nested import tensors_of
from kernelwright.tools.operators.dispatch import without_dynamo
from kernelwright.tools.operators.operators import HOST_READS, only_moves_data

if TYPE_CHECKING:
    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types


_SELECTING = """
    abs amax amin aminmax ceil clamp clamp_max clamp_min clip copysign cummax cummin floor fmax fmin frac hardshrink
    hardtanh kthvalue masked_fill max maximum median min minimum mode nan_to_num nanmedian neg positive relu round sgn
    sign sort threshold topk trunc where fmod floor_divide real imag
"""
"""Operators that select, compare, clip or split values. `fmod` and the floor of a quotient have exact results."""
_MOVING = """
    _unsafe_index as_strided_scatter bucketize channel_shuffle col2im diag diag_embed diagonal_scatter embedding flip
    gather im2col index index_copy index_fill index_put index_select masked_scatter masked_select max_unpool2d
    max_unpool3d narrow_copy native_channel_shuffle one_hot permute_copy pixel_shuffle pixel_unshuffle put
    reflection_pad1d reflection_pad2d reflection_pad3d repeat_interleave replication_pad1d replication_pad2d
    replication_pad3d roll rot90 scatter select_scatter slice_scatter take tril triu unfold_copy upsample_nearest1d
    upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    view_copy
"""
_POOLING = """
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d max_pool1d_with_indices max_pool2d_with_indices
    max_pool3d_with_indices max_pool1d max_pool2d max_pool3d
"""
_STEPPING = """
    ceil floor floor_divide fmod frac hardshrink heaviside remainder round sgn sign threshold trunc
"""
_QUANTISING = """
    fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask histc quantize_per_channel
    quantize_per_tensor
"""
EXACT_OPERATORS = frozenset(f"{_SELECTING} {_MOVING} {_POOLING}".split())
"""Operators whose floating results have a single correct value, up to the sign of a zero."""
STEP_OPERATORS = frozenset(_STEPPING.split())
"""Operators with jumps and floating results."""
ROUNDING_STEP_OPERATORS = frozenset(_QUANTISING.split())
"""Operators that round and then step by themselves."""
WIDEST_TYPES = (torch.float64, torch.complex128)
CONVERTING_OPERATORS = frozenset({"_to_copy", "copy_"})
ACCUMULATE_ARGUMENT = 3
"""Place of `accumulate` among the arguments of `index_put`."""


@without_dynamo
class KindTracker(TorchDispatchMode):
    """Dispatch mode that tracks the kinds of tensors while a reference runs."""

    def __init__(self, exact_tensors: Iterable[Any]) -> None:
        """exact_tensors: inputs, weights and other tensors that exist before the run."""
        super().__init__()
        self._kinds = {_storage(t): ArithmeticKind.EXACT for t in exact_tensors if _storage(t)}
        self._least = ArithmeticKind.EXACT
        self.hides_rounding = False
        """The run computes in float64 or narrows a rounded number: there the float64 reference
        rounds like eager, so their agreement shows nothing."""

    def kind_of(self, value: object) -> ArithmeticKind:
        """Returns the kind of a tensor from the run; ROUNDED if its origin was not observed."""
        if not _storage(value):
            return self._least
        return max(self._least, self._kinds.get(_storage(value), ArithmeticKind.ROUNDED))

    def __torch_dispatch__(
        self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
    ) -> Any:
        named = kwargs or {}
        operands = [t for t in tensors_of([*args, *named.values()]) if _storage(t)]
        self.hides_rounding |= any(t.dtype in WIDEST_TYPES for t in operands)
        before = {_storage(t): self.kind_of(t) for t in operands}
        is_new = func.overloadpacket.__name__.startswith("lift")
        kind = (
            ArithmeticKind.EXACT if is_new else max(before.values(), default=ArithmeticKind.EXACT)
        )
        output = func(*args, **named)
        results = tensors_of(output)
        if (
            not results
            and func.overloadpacket.__name__ in HOST_READS
            and kind > ArithmeticKind.EXACT
        ):
            self._least = ArithmeticKind.STEPPED  # the host may decide by it
        for result in results:
            self.hides_rounding |= kind > ArithmeticKind.EXACT and _narrows(func, operands, result)
            result_kind = _kind_of_result(func, args, named, result, kind)
            storage = _storage(result)
            self._kinds[storage] = (
                max(result_kind, before[storage])
                if storage in before and not is_new
                else result_kind
            )
        return output


def _narrows(func: OpOverload, operands: list[torch.Tensor], result: torch.Tensor) -> bool:
    """Returns True if a conversion yields floats of fewer bytes."""
    is_conversion = (
        func.overloadpacket.__name__ in CONVERTING_OPERATORS and result.is_floating_point()
    )
    return is_conversion and any(
        t.is_floating_point() and t.itemsize > result.itemsize for t in operands
    )


def _kind_of_result(
    func: OpOverload,
    args: Sequence[Any],
    named: Mapping[str, Any],
    result: torch.Tensor,
    kind: ArithmeticKind,
) -> ArithmeticKind:
    if not (result.is_floating_point() or result.is_complex()):
        return ArithmeticKind.STEPPED if kind > ArithmeticKind.EXACT else kind
    name = func.overloadpacket.__name__.removesuffix("_")
    if name in ROUNDING_STEP_OPERATORS:
        return ArithmeticKind.STEPPED
    rounding_mode = named.get("rounding_mode") if name == "div" else None
    if rounding_mode == "trunc":  # a rounded quotient is cut; "floor" goes by the exact remainder
        return ArithmeticKind.STEPPED
    if rounding_mode == "floor":
        name = "floor_divide"
    if name in STEP_OPERATORS and kind > ArithmeticKind.EXACT:
        return ArithmeticKind.STEPPED
    if (
        func.overloadpacket.__name__ in CONVERTING_OPERATORS
    ):  # of eight bits the largest are converted in several ways
        return max(kind, ArithmeticKind.ROUNDED) if result.itemsize == 1 else kind
    return max(kind, ArithmeticKind.ROUNDED) if may_round(func, args) else kind


def may_round(func: OpOverload, args: Sequence[Any]) -> bool:
    """Returns whether two correct ways to work out a floating result of an operator may differ."""
    name = func.overloadpacket.__name__.removesuffix("_")
    if func.is_view or only_moves_data(func):
        return False
    if name == "index_put":
        return len(args) > ACCUMULATE_ARGUMENT and bool(args[ACCUMULATE_ARGUMENT])
    return name not in EXACT_OPERATORS or "reduce" in func._overloadname


def _storage(value: object) -> int:
    """Returns the address of a tensor's memory; 0 for other values."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return 0
    return int(value.untyped_storage().data_ptr())
