"""Counts operations and reads of a forward pass, operator by operator, on meta tensors, so that
full shapes need no memory.

Conventions: matmul, convolution and attention as in torch.utils.flop_counter (a multiply-add is
two operations); an elementwise operator is an operation per output element, whatever the
function; a reduction is an operation per input element, a norm or a softmax an operation per
element; views, copies, fills and gathers are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernelwright.tools.numerics.tolerance import Tensor
from kernelwright.tools.operators.dispatch import without_dynamo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types

GATHERING_OPERATORS = {
    "embedding",
    "index_select",
    "gather",
    "index",
    "take",
    "_unsafe_index",
    "embedding_bag",
    "_embedding_bag",
}
"""Ops reading as much of their table as they return."""
OPERATORS_WITHOUT_ARITHMETIC = {
    "clone", "copy_", "copy", "_to_copy", "contiguous", "cat", "stack", "fill_", "zero_", "zeros", "zeros_like", "ones",
    "ones_like", "full", "full_like",
    "empty", "empty_like", "new_empty", "new_zeros", "new_ones", "new_full", "arange", "rand", "randn", "rand_like",
    "randn_like", "randint", "roll", "flip",
    "constant_pad_nd", "reflection_pad2d", "repeat", "tril", "triu", "lift_fresh", "lift_fresh_copy", "scalar_tensor",
    "eye", "empty_strided",
    "new_empty_strided", "resize_", "set_", "_reshape_copy", "bernoulli_", "uniform_", "normal_",
    "split_with_sizes_copy", "linspace", "one_hot", "tril_",
}  # fmt: skip
PRODUCT_OPERATORS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "_convolution")
"""Ops for which a least number of operations is known (tools/timing/roofline.py)."""


@dataclass
class Product:
    """Matmul, convolution or attention, with its operations."""

    name: str
    operations: int
    dtype: Any
    direct: bool
    """Whether each tensor operand is an input, a weight, or a view of either."""
    window: int
    """Kernel elements of a convolution over its spatial dimensions; 1 for a matmul."""
    out: int
    """Number of output elements."""


@dataclass
class OperatorTally:
    """Operations and reads of a reference's operators, counted on meta tensors."""

    products: list[Product] = field(default_factory=list)
    elementwise: int = 0
    """Operations other than products."""
    plain: bool = True
    """Whether there are only element-wise operators, views and copies beside the products."""
    pieces: dict[int, dict[tuple[Any, ...], int]] = field(default_factory=dict)
    """Storage to the pieces of it that are read: (offset, shape, stride) to bytes."""
    shares: dict[int, float] = field(default_factory=dict)
    """Storages which may be read only partly, with the share certainly read: 0 through an
    index, 0.5 through a strided window.
    """
    ops: dict[str, int] = field(default_factory=dict)
    """Number of calls by operator."""

    def bytes_read(self, tensor: Tensor) -> int:
        """Bytes of the tensor's storage read by some op; each piece once, and never more than the whole."""
        return min(
            sum(self.pieces.get(storage_of(tensor), {}).values()),
            tensor.numel() * tensor.element_size(),
        )


def storage_of(tensor: Tensor) -> int:
    """Names a tensor's storage, on any device."""
    return tensor.untyped_storage()._cdata


def trace(run: Callable[[], Any], tracked: Iterable[Tensor]) -> tuple[Any, OperatorTally]:
    """Calls `run` and watches its operators. tracked: inputs and weights, whose reads are
    counted. Returns the result of `run`, and the tally.
    """
    tally, storages = OperatorTally(), {storage_of(t) for t in tracked}
    with _recurrent_mode(tally, storages), _mode(tally, storages):
        return run(), tally


def _mode(tally: OperatorTally, tracked: set[int]) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    @without_dynamo
    class CostWatch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            _note(tally, tracked, func, args, kwargs or {}, out)
            return out

    return CostWatch()


def _recurrent_mode(tally: OperatorTally, tracked: set[int]) -> Any:
    """Returns a mode which counts nn.LSTM, nn.GRU and nn.RNN as a single operator: step by step
    on meta tensors, 500 steps take half a minute.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class Recurrent(TorchFunctionMode):
        def __torch_function__(
            self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
        ) -> Any:
            name = getattr(func, "__name__", "")
            whole = (
                name in ("lstm", "gru", "rnn_tanh", "rnn_relu")
                and len(args) == 9
                and args[0].is_meta
            )
            if not whole:
                return func(*args, **(kwargs or {}))
            operands = [
                t for t in torch.utils._pytree.tree_leaves(args[:3]) if isinstance(t, torch.Tensor)
            ]
            _note_reads(tally, tracked, name, operands, 0, 1.0)
            return _recurrent(tally, name, args)

    return Recurrent()


def _recurrent(tally: OperatorTally, name: str, args: Sequence[Any]) -> Any:
    """Returns empty outputs of the correct shapes.

    args: input, state or states, weights, has_biases, layers, dropout, train, bidirectional,
    batch_first.
    """
    x, state, weights, *_, both_ways, _batch_first = args
    states = state if isinstance(state, tuple | list) else (state,)
    steps = x.numel() // x.shape[-1]
    operations = 2 * steps * sum(w.numel() for w in weights if w.dim() == 2)
    out = x.new_empty(*x.shape[:-1], states[0].shape[-1] * (2 if both_ways else 1))
    tally.plain = False
    tally.ops[name] = tally.ops.get(name, 0) + 1
    tally.products.append(Product(name, operations, x.dtype, False, 1, out.numel()))
    return (out, *(s.new_empty(s.shape) for s in states))


def _note(
    tally: OperatorTally,
    tracked: set[int],
    func: OpOverload,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    out: object,
) -> None:
    import torch

    from kernelwright.tools.operators.operators import operations_by_formula

    name = func._overloadpacket.__name__
    tally.ops[name] = tally.ops.get(name, 0) + 1
    if _is_view(func):
        return
    operands, outs = (
        [leaf for leaf in torch.utils._pytree.tree_leaves(part) if isinstance(leaf, torch.Tensor)]
        for part in ((args, kwargs), out)
    )
    written = sum(o.numel() for o in outs)
    _note_reads(tally, tracked, name, operands, written, _share_read(name, args))
    operations = operations_by_formula(func, args, kwargs, out)
    if operations is not None:
        direct = all(storage_of(t) in tracked for t in operands)
        tally.products.append(
            Product(
                name,
                operations,
                operands[0].dtype,
                direct,
                _window(name, args),
                written,
            )
        )
    elif name not in OPERATORS_WITHOUT_ARITHMETIC and name not in GATHERING_OPERATORS:
        pointwise = torch.Tag.pointwise in func.tags
        tally.plain = tally.plain and pointwise
        tally.elementwise += (
            written if pointwise else max([written, *(t.numel() for t in operands)])
        )


def _is_view(func: OpOverload) -> bool:
    import torch

    aliases = [a.alias_info for a in func._schema.arguments]
    return (
        any(a is not None and not a.is_write for a in aliases)
        or torch.Tag.inplace_view in func.tags
        or func.is_view
    )


def _note_reads(
    tally: OperatorTally,
    tracked: set[int],
    name: str,
    operands: list[Tensor],
    written: int,
    share: float,
) -> None:
    for index, t in enumerate(operands):
        if (storage := storage_of(t)) in tracked:
            elements = 1
            for size, stride in zip(t.shape, t.stride(), strict=True):
                elements *= size if stride else 1
            if name in GATHERING_OPERATORS and index == 0:
                elements = min(elements, written)
            if index == 0 and share < 1:
                tally.shares[storage] = min(share, tally.shares.get(storage, 1.0))
            key = (t.storage_offset(), tuple(t.shape), tuple(t.stride()))
            pieces = tally.pieces.setdefault(storage, {})
            pieces[key] = max(pieces.get(key, 0), elements * t.element_size())


def _share_read(name: str, args: Sequence[Any]) -> float:
    """Returns the share of an operator's first tensor that it certainly reads."""
    if (
        name in GATHERING_OPERATORS
        or "upsample" in name
        or "grid_sampler" in name
        or "unfold" in name
        or "im2col" in name
    ):
        return 0.0
    if name in ("convolution", "_convolution"):
        transposed, stride, dilation = args[6], args[3], args[5]
        kernel = args[1].shape[2:]
    elif "pool" in name and "adaptive" not in name and len(args) > 1:
        kernel = args[1]
        transposed, stride = False, args[2] if len(args) > 2 and args[2] else kernel
        dilation = args[4] if "max_pool" in name and len(args) > 4 else [1]
    else:
        return 1.0
    if transposed or max(stride) == 1:
        return 1.0
    return (
        0.0
        if max(dilation) > 1 or any(s > k for s, k in zip(stride, kernel, strict=False))
        else 0.5
    )


def _window(name: str, args: Sequence[Any]) -> int:
    if "convolution" not in name:
        return 1
    window = 1
    for size in args[1].shape[2:]:
        window *= size
    return window
