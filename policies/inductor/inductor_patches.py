"""Configuration of Inductor for drafts, and patches of its gaps for symbolic sizes.

The patches last for the whole process, like those of `private_torch.py`, which lists all private
functions used here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.decisions.fusions import open_fusions
from kernelwright.policies.inductor.decisions.reductions import decide_row, decide_splits
from kernelwright.policies.inductor.decisions.values import open_values

if TYPE_CHECKING:
    import sympy
    from torch._inductor.codegen.simd_kernel_features import SIMDKernelFeatures
    from torch._inductor.scheduler import SchedulerNode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

MAX_SPLITS_OF_A_REDUCTION = 264
"""Two for each multiprocessor of a large GPU."""


def configure_inductor(own_products: bool) -> None:
    """Inductor's own configuration, and two bounds it lacks for symbolic sizes."""
    from torch._inductor import config
    from torch._inductor.sizevars import SizeVarAllocator
    from torch.utils._sympy.value_ranges import ValueRangeError

    config.compile_threads = 1
    config.size_asserts = config.allow_buffer_reuse = config.graph_partition = (
        config.inplace_buffers
    ) = False
    config.layout_optimization = config.fallback_random = False
    config.online_softmax = True
    config.triton.cudagraphs = config.triton.mix_order_reduction = False
    config.triton.descriptive_names, config.triton.unique_kernel_names = "original_aten", True
    config.triton.native_matmul = own_products
    config.triton.persistent_reductions = True
    ask = SizeVarAllocator.guard_or_false

    def guarded(self: Any, question: sympy.Expr) -> bool:
        """Returns False if the bounds of an expression cannot be followed (ValueError: negative
        exponents).
        """
        try:
            return bool(ask(self, question))
        except (ValueRangeError, ValueError):
            return False

    SizeVarAllocator.guard_or_false = guarded  # type: ignore[method-assign]
    _channels_last_outputs()
    _order_by_symbols()
    _known_splits()
    _split_by_symbols()
    _undecided_without_ranges()
    _looped_products()
    open_values()
    open_fusions()
    _bounded_splits()


def _bounded_splits() -> None:
    """Bounds the splits of a reduction, which Inductor does for numeric sizes only, and lets plans decide them."""
    from torch._inductor.choices import InductorChoices

    split: Any = InductorChoices.reduction_split_factor
    if hasattr(split, "plain"):
        return

    def capped(*args: Any, **named: Any) -> int:
        default = min(int(split(*args, **named)), MAX_SPLITS_OF_A_REDUCTION)
        *_, reduced, results = args
        return decide_splits(default, int(reduced), int(results))

    capped.plain = split  # type: ignore[attr-defined]
    method = not isinstance(
        vars(InductorChoices)["reduction_split_factor"], staticmethod
    )  # from torch 2.14 on
    InductorChoices.reduction_split_factor = capped if method else staticmethod(capped)  # type: ignore


def _looped_products() -> None:
    """Keeps the reductions of own products in loops, whose whole rows of both operands do not fit
    into shared memory; other reductions hold a row that fits into one block.
    """
    from torch._inductor.choices import InductorChoices

    plain: Any = InductorChoices.should_use_persistent_reduction
    if hasattr(plain, "plain"):
        return

    def is_persistent(features: SIMDKernelFeatures, cooperative_reduction: bool) -> bool:
        nodes = [n.node for n in features.reduction_nodes()]
        if any(getattr(n, "get_reduction_type", lambda: None)() == "dot" for n in nodes):
            return False
        return decide_row(features, bool(plain(features, cooperative_reduction)))

    is_persistent.plain = plain  # type: ignore[attr-defined]
    InductorChoices.should_use_persistent_reduction = staticmethod(is_persistent)  # type: ignore[method-assign]


def _known_splits() -> None:
    """Compares sizes by value instead of text when Inductor looks for coalesced axes.

    torch 2.11 compares the texts of sizes there, and fails with an assertion without a message.
    """
    from torch._inductor import tiling_utils
    from torch._inductor.utils import sympy_product
    from torch._inductor.virtualized import V

    plain: Any = tiling_utils.get_pw_red_splits
    if hasattr(plain, "plain"):
        return

    def splits(
        n: SchedulerNode,
        pointwise: sympy.Expr,
        reduced: sympy.Expr,
        none_if_not_divisible: bool = False,
    ) -> Any:
        body = n._body
        if V.graph.sizevars.statically_known_equals(sympy_product(body.sizes[0]), pointwise):
            return (body.iter_vars, body.sizes[0]), (body.reduce_vars, body.sizes[1])
        return plain(n, pointwise, reduced, none_if_not_divisible)

    splits.plain = plain  # type: ignore[attr-defined]
    tiling_utils.get_pw_red_splits = splits  # type: ignore[assignment]


def _undecided_without_ranges() -> None:
    """Leaves a comparison with a loop index undecided if torch does not know the range of the
    index.

    While simplifying a modulus, torch 2.13 makes such comparisons itself, and fails with an
    assertion.
    """
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    plain: Any = ShapeEnv._maybe_evaluate_static
    if hasattr(plain, "plain"):
        return

    @functools.wraps(plain)  # with the functions of its cache
    def evaluated(self: Any, expression: object, *args: Any, **options: Any) -> Any:
        try:
            return plain(self, expression, *args, **options)
        except AssertionError as error:
            if "vr must not be None" not in str(error):
                raise
            return None

    evaluated.plain = plain  # type: ignore[attr-defined]
    ShapeEnv._maybe_evaluate_static = evaluated  # type: ignore[assignment, method-assign]


def _split_by_symbols() -> None:
    """Splits a loop over `rows * columns` over a grid of `rows` and `columns` also if both are
    symbols.

    Inductor asks whether the product is known to exceed `rows`; `columns` may be 1, and the split
    is valid in that case
    too. Used only after Inductor itself finds no split.
    """
    from torch._inductor.codegen.simd import CantSplit, SIMDKernel
    from torch._inductor.sizevars import SizeVarAllocator

    plain: Any = SIMDKernel._split_iteration_ranges
    if hasattr(plain, "plain"):
        return
    known_more = SizeVarAllocator.statically_known_gt

    def symbolically_greater(self: Any, left: sympy.Expr, right: sympy.Expr) -> bool:
        return bool(known_more(self, left, right)) or (
            size_hint(left) > size_hint(right) and self.statically_known_multiple_of(left, right)
        )

    def split(groups: Iterable[sympy.Expr], lengths: Sequence[Sequence[sympy.Expr]]) -> Any:
        groups = list(groups)
        try:
            return plain(groups, lengths)
        except CantSplit:
            SizeVarAllocator.statically_known_gt = symbolically_greater  # type: ignore[method-assign]
            try:
                return plain(groups, lengths)
            finally:
                SizeVarAllocator.statically_known_gt = known_more  # type: ignore[method-assign]

    split.plain = plain  # type: ignore[attr-defined]
    SIMDKernel._split_iteration_ranges = staticmethod(split)  # type: ignore[method-assign]


def size_hint(size: int | sympy.Expr) -> int:
    """Returns the value of a size in the problem itself, 0 if unknown. Valid while a graph is
    lowered.
    """
    from torch._inductor.virtualized import V

    sizes: Any = V.graph.sizevars
    hint = (
        getattr(sizes, "optimization_hint", None) or sizes.size_hint
    )  # its name before torch 2.12
    return int(hint(size, fallback=0))


def drop_maxima(expression: object) -> Any:
    """Replaces `Max(1, size)` in a stride by the size: the two differ only for tensors without
    elements.
    """
    import sympy
    from torch.utils._sympy.functions import Max

    if not isinstance(expression, sympy.Expr):
        return expression
    return expression.replace(
        lambda e: isinstance(e, Max) and len(e.args) == 2 and sympy.S.One in e.args,
        lambda e: next((a for a in e.args if a != 1), sympy.S.One),
    )


def _order_by_symbols() -> None:
    """Gives symbolic strides an order for callers that pass no shape environment."""
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    if hasattr(ir.get_fill_order, "plain"):
        return
    plain = ir.get_fill_order

    def fill_order(seq: Sequence[int | sympy.Expr], shape_env: ShapeEnv | None = None) -> Any:
        return plain(seq, shape_env or V.graph.sizevars.shape_env)

    fill_order.plain = plain  # type: ignore[attr-defined]
    ir.get_fill_order = fill_order


def _channels_last_outputs() -> None:
    """A two-axis convolution with channels last also returns them last, which a CPU build of torch,
    asked for the layout, does not know.
    """
    from torch._inductor import ir
    from torch._inductor.kernel import conv
    from torch._inductor.virtualized import V

    if hasattr(conv.conv_layout, "plain"):
        return
    plain = conv.conv_layout

    def conv_layout(*args: Any, **kwargs: Any) -> Any:
        layout = plain(*args, **kwargs)
        strides = [drop_maxima(n) for n in layout.stride]
        if V.graph.layout_opt and len(layout.size) == 4:
            _, channels, height, width = layout.size
            strides = [channels * height * width, 1, width * channels, channels]
        return ir.FixedLayout(layout.device, layout.dtype, layout.size, strides)

    conv_layout.plain = plain  # type: ignore[attr-defined]
    conv.conv_layout = conv_layout
