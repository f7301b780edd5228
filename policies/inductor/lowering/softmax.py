"""Online softmax over rows of unknown length: maximum and sum of exponents in one pass (Milakov
and Gimelshein 2018).

Inductor would pass over the row twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.decisions.deciding import decide
from kernelwright.policies.inductor.decisions.sites import operator_site
from kernelwright.policies.inductor.inductor_patches import size_hint

if TYPE_CHECKING:
    from torch._inductor.ir import TensorBox

MIN_SOFTMAX_ELEMENTS = 1 << 14
"""Elements, at the problem's own sizes: shorter rows are still in the caches at the second pass, and two passes are
kinder to short rows than the rescaling of a sum."""


def online_softmax() -> None:
    """Replaces the lowering of `prepare_softmax_online`, used by softmax and log-softmax, for the
    rest of this process.
    """
    from torch._inductor import inductor_prims
    from torch._inductor.lowering import lowerings

    plain = lowerings[inductor_prims.prepare_softmax_online]

    def lowered(x: TensorBox, dim: int) -> Any:
        from torch._inductor.ir import OnlineSoftmaxReduction
        from torch._inductor.lowering import _make_reduction_inner

        arguments = _make_reduction_inner(
            x, axis=dim, keepdims=True, dtype=None, override_return_dtype=None
        )
        (extent,) = arguments["reduction_ranges"]
        default = "two_passes" if size_hint(extent) < MIN_SOFTMAX_ELEMENTS else "one_pass"
        passes = decide("softmax", operator_site(), default, ("two_passes", "one_pass"))
        if passes == "two_passes":
            return plain(x, dim)
        return OnlineSoftmaxReduction.create(input_node=x, num_output=2, **arguments)

    lowerings[inductor_prims.prepare_softmax_online] = lowered
