"""The greatest common divisor, which Inductor leaves to the library, as a function of its kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch._inductor.virtualized import OpsValue

OPERATION = "greatest_common_divisor"
"""The name of the operation in Inductor, and of the helper in the draft (writing/helpers.py)."""


def own_greatest_common_divisor() -> None:
    """Teaches Inductor the function, for the rest of this process; `lcm` is made of it by torch."""
    import torch
    from torch._inductor.codegen.triton import TritonOverrides
    from torch._inductor.dtype_propagation import DtypePropagationOpsHandler
    from torch._inductor.lowering import make_pointwise, register_lowering
    from torch._inductor.ops_handler import DefaultHandler
    from torch._inductor.virtualized import ops

    def passed_on(self: Any, a: OpsValue, b: OpsValue) -> Any:
        return self._default(OPERATION, (a, b), {})

    def written(a: str, b: str) -> str:
        return f"triton_helpers.{OPERATION}({a}, {b})"

    def of_one_element(a: OpsValue, b: OpsValue) -> Any:
        return getattr(ops, OPERATION)(a, b)

    setattr(DefaultHandler, OPERATION, passed_on)
    setattr(TritonOverrides, OPERATION, staticmethod(written))
    setattr(DtypePropagationOpsHandler, OPERATION, staticmethod(DtypePropagationOpsHandler.mod))
    register_lowering(torch.ops.aten.gcd.default, broadcast=True)(make_pointwise(of_one_element))
