"""Classifies torch's operators (computation, allocation or view or copy, read by the host) and
counts their operations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tag
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from kernelwright.tools.nested import tensors_of
from kernelwright.tools.operators.dispatch import without_dynamo

if TYPE_CHECKING:
    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types

ALLOCATING_OPERATORS = frozenset(
    [
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "zeros",
        "zeros_like",
        "new_zeros",
        "ones",
        "ones_like",
        "new_ones",
        "full",
        "full_like",
        "new_full",
        "fill_",
        "fill",
        "zero_",
        "scalar_tensor",
        "arange",
    ]
)
COPYING_OPERATORS = frozenset(
    [
        "clone",
        "copy_",
        "contiguous",
        "_to_copy",
        "cat",
        "stack",
        "constant_pad_nd",
        "repeat",
        "expand_copy",
        "lift_fresh",
        "lift_fresh_copy",
        "lift",
        "set_",
        "resize_",
        "record_stream",
        "pin_memory",
        "_pin_memory",
        "is_pinned",
        "split_with_sizes_copy",
    ]
)
"""Operators moving elements unchanged (except for rounding by a change of dtype)."""
VIEWING_OPERATORS = frozenset(
    [
        "_reshape_alias.default",
        "_unsafe_view.default",
        "alias.default",
        "as_strided.default",
        "detach.default",
        "diagonal.default",
        "expand.default",
        "lift_fresh.default",
        "permute.default",
        "select.int",
        "slice.Tensor",
        "split.Tensor",
        "split_with_sizes.default",
        "squeeze.default",
        "squeeze.dim",
        "squeeze.dims",
        "t.default",
        "transpose.int",
        "unbind.int",
        "unfold.default",
        "unsqueeze.default",
        "view.default",
        "view.dtype",
        "view_as_complex.default",
        "view_as_real.default",
    ]
)
"""View operators met by a dispatch mode, by name and overload, whose elements are those of their
operand.

Python's other views (`narrow`, `mT`, `chunk`, `reshape`) reach a tape as these. Other aliases of
an operand compute (`_conj`, `_neg_view`), or were never recorded: only a forged trace names them.
"""
SEARCHES = frozenset({"bucketize", "searchsorted"})
"""Operators on a sorted operand."""
SORTS = frozenset({"argsort", "msort", "sort"})
PRODUCTS = frozenset({"addmm", "baddbmm", "bmm", "dot", "mm", "mv"})
"""Products of matrices or vectors."""
EXPONENTIALS = frozenset(
    {"_log_softmax", "_safe_softmax", "_softmax", "exp", "exp2", "logaddexp", "logsumexp"}
)
"""Exponentials of an operand."""
HOST_READS = frozenset({"_local_scalar_dense", "item", "equal", "is_nonzero", "nonzero"})
FREE_OPERATORS = frozenset(
    {
        "is_same_size",
        "sym_size",
        "sym_stride",
        "sym_numel",
        "device",
        "dim",
        "size",
        "stride",
    }
)


def operator_named(op: str) -> Any | None:
    """Returns torch's operator of this name (`aten.view.default`); None if there is none."""
    import torch

    parts = op.split(".")
    if len(parts) != 3 or parts[0] != "aten":
        return None
    overload = getattr(getattr(torch.ops.aten, parts[1], None), parts[2], None)
    return overload if isinstance(overload, torch._ops.OpOverload) else None


def only_moves_data(func: OpOverload) -> bool:
    """Whether it only allocates, views or copies."""
    name = func.overloadpacket.__name__
    if name in ALLOCATING_OPERATORS or name in COPYING_OPERATORS or name in FREE_OPERATORS:
        return True
    return f"{name}.{func._overloadname}" in VIEWING_OPERATORS


def reads_a_position(func: OpOverload) -> bool:
    """Returns whether position or size of a view depends on the content of another tensor."""
    operand, *parameters = func._schema.arguments or (None,)
    return (
        operand is not None
        and func.is_view
        and any("Tensor" in str(other.type) for other in parameters)
    )


def operations_by_formula(
    func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: object
) -> int | None:
    """Returns the operations of a product, a convolution or an attention by torch's formula; None
    for other operators.

    A formula may refuse a valid call (attention with fewer key heads than query heads, in torch
    2.13). Counting must not fail: such a call is counted from the shapes of its operands.
    """
    packet = func.overloadpacket
    is_attention = "scaled_dot_product" in packet.__name__
    if packet not in flop_registry and not is_attention:
        return None
    with contextlib.suppress(Exception):
        return int(flop_registry[packet](*args, **kwargs, out_val=result))
    operands = tensors_of(args)
    if is_attention and len(operands) >= 3:
        query, key, value = operands[:3]
        rows = query.numel() // max(query.shape[-1], 1)
        return int(2 * rows * key.shape[-2] * (query.shape[-1] + value.shape[-1]))
    return None


def operations_of_call(
    func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: object
) -> int:
    """Returns the number of floating-point operations: torch's own formula for products, else the
    largest number of elements of an operand or result.
    """
    operations = operations_by_formula(func, args, kwargs, result)
    if operations is not None:
        return operations
    sizes = [t.numel() for t in (*tensors_of(args), *tensors_of(result))]
    return max(sizes, default=0)


class OperationCounts(NamedTuple):
    """Counts and properties of the operators of a call."""

    operations: int
    searches: bool = False
    """Whether some operator asked for a sorted operand."""
    exponentiates_products: bool = False
    """Whether an exponential follows a product of matrices, as in attention."""
    sorts: bool = False
    """Whether some operator sorts its operand."""
    mixes_elements: bool = False
    """Whether an element may be computed from several elements of one input, as in a sum or a scan."""


def _takes_apart(args: Sequence[Any], result: object) -> bool:
    """Returns whether an operator takes a part of a tensor or joins several, as loops over steps do."""
    sizes = [tensor.numel() for tensor in tensors_of(args)]
    is_part = any(tensor.numel() < max(sizes, default=0) for tensor in tensors_of(result))
    joins = any(isinstance(argument, list | tuple) and tensors_of(argument) for argument in args)
    return is_part or joins


@without_dynamo
class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.total = 0
        self.searches = self.exponentiates_products = self.sorts = False
        self.mixes_elements = False
        self._multiplied = False

    def __torch_dispatch__(
        self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if not only_moves_data(func) and name not in HOST_READS:
            self.total += operations_of_call(func, args, kwargs or {}, result)
            self.mixes_elements |= Tag.pointwise not in func.tags
        else:
            self.mixes_elements |= _takes_apart(args, result)
        self.searches |= name in SEARCHES
        self.sorts |= name in SORTS
        self._multiplied |= name in PRODUCTS
        self.exponentiates_products |= "attention" in name or (
            self._multiplied and name in EXPONENTIALS
        )
        return result


def count_operations(call: Callable[[], object]) -> OperationCounts:
    """Returns the operations of `call` in torch, counted like a candidate's."""
    with _Counter() as counter:
        call()
    return OperationCounts(
        counter.total,
        counter.searches,
        counter.exponentiates_products,
        counter.sorts,
        counter.mixes_elements,
    )


def sorted_inputs(inputs: Sequence[Any]) -> tuple[int, ...]:
    """Indices of floating inputs nondecreasing, and not constant, along their last dimension."""
    import torch

    floating = {
        i: v
        for i, v in enumerate(inputs)
        if isinstance(v, torch.Tensor) and v.is_floating_point() and v.dim()
    }
    steps = {i: v.diff(dim=-1) for i, v in floating.items() if v.itemsize > 1}
    return tuple(
        i for i, step in steps.items() if bool((step >= 0).all()) and bool((step > 0).any())
    )


def sort_again(inputs: Sequence[Any], positions: Iterable[int]) -> None:
    """Sorts these inputs along their last dimension, in place, with NaN last. Results of searches
    in unsorted inputs are undefined in torch, and differ between counting and bisection.
    """
    for position in positions:
        inputs[position].copy_(inputs[position].sort(dim=-1).values)
