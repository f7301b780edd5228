"""Max pooling with written-out windows.

Inductor loops over windows of three axes, which loads each window separately; written out,
neighbouring windows are
loaded together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelwright.policies.inductor.lowering.geometry import MAX_UNROLLED_TERMS


def written_out_windows() -> None:
    """Replaces the lowerings of pooling by maxima Inductor leaves as loops, for the rest of this
    process.
    """
    import torch
    from torch._inductor.lowering import lowerings

    aten = torch.ops.aten
    for operator in (aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default):
        lowerings[operator] = _written_out(lowerings[operator])


def _written_out(plain: Callable[..., Any]) -> Any:
    from torch._inductor import config

    def lowered(*args: Any, **kwargs: Any) -> Any:
        with config.patch(unroll_reductions_threshold=MAX_UNROLLED_TERMS + 1):
            return plain(*args, **kwargs)

    return lowered
