"""Matrix products without a library: Inductor's `tl.dot` kernels, and a product and a sum where `tl.dot` cannot be
used.
"""

from __future__ import annotations

from typing import Any


def own_products() -> None:
    """Replaces the lowerings of mm, bmm, addmm and baddbmm for the rest of this process."""
    import torch
    from torch._inductor.lowering import lowerings

    aten = torch.ops.aten
    for operator, left, right, axis in ((aten.mm.default, -1, 0, 1), (aten.bmm.default, -1, 1, 2)):
        lowerings[operator] = _product(lowerings[operator], left, right, axis)
    lowerings[aten.addmm.default] = _with_base(aten.mm.default)
    lowerings[aten.baddbmm.default] = _with_base(aten.bmm.default)


def _product(by_dot: Any, left: int, right: int, axis: int) -> Any:
    """`tl.dot` where Inductor can use it; elsewhere (a side of one, float64) elements are multiplied and summed
    along `axis`.
    """
    import torch
    from torch._inductor.kernel.mm_common import use_native_matmul
    from torch._inductor.lowering import lowerings

    aten = torch.ops.aten

    def lowered(a: Any, b: Any, **options: Any) -> Any:
        if use_native_matmul(a, b):
            return by_dot(a, b, **options)
        wide_a, wide_b = lowerings[aten.unsqueeze](a, left), lowerings[aten.unsqueeze](b, right)
        return lowerings[aten.sum](lowerings[aten.mul](wide_a, wide_b), [axis])

    return lowered


def _with_base(product: Any) -> Any:
    """base * beta + (a @ b) * alpha."""
    import torch
    from torch._inductor.lowering import lowerings

    aten = torch.ops.aten

    def lowered(base: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
        made = lowerings[product](a, b)
        made = made if alpha == 1 else lowerings[aten.mul](made, alpha)
        if beta == 0:
            return made
        return lowerings[aten.add](base if beta == 1 else lowerings[aten.mul](base, beta), made)

    return lowered
