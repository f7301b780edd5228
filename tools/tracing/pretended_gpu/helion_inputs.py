"""Traces Helion's kernels at several sizes.

Helion takes a fake tensor for part of an outer trace, with constant sizes. A process that calls a
kernel at several sizes would reuse the code of the first size, which Helion does not do for tensors
with data.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


NOT_TUNED = "Helion's autotuner needs a GPU and data: kernels without a configuration are judged with its default one"


def choose_default_configurations() -> None:
    """Selects Helion's default configuration for kernels without an own; called before a candidate
    is imported."""
    os.environ.setdefault("HELION_AUTOTUNE_EFFORT", "none")


def make_sizes_symbolic() -> str:
    """Makes Helion treat input sizes as symbols, as for tensors with data, unless a kernel requests
    static shapes.

    Returns a note for the report. Does nothing if the candidate did not import Helion, or its
    version differs.
    """
    if "helion" not in sys.modules:
        return ""
    try:
        from helion._compiler.compile_environment import CompileEnvironment
    except ImportError:
        return ""
    original = getattr(CompileEnvironment, "_to_fake_tensor", None)
    if original is None:
        return NOT_TUNED

    def to_fake_tensor(self: Any, tensor: torch.Tensor, source: Any) -> Any:
        return original(
            self, tensor if self.settings.static_shapes else _symbolic(self, tensor), source
        )

    CompileEnvironment._to_fake_tensor = to_fake_tensor
    return NOT_TUNED


def _symbolic(owner: Any, tensor: torch.Tensor) -> Any:
    """Returns a fake tensor with symbolic sizes. Equal sizes of an owner's tensors share a symbol."""
    import torch
    from torch._dynamo.source import LocalSource
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    mode = vars(owner).setdefault("_kernelwright_mode", FakeTensorMode(shape_env=ShapeEnv()))
    number = vars(owner)["_kernelwright_inputs"] = vars(owner).get("_kernelwright_inputs", 0) + 1
    context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DUCK] * tensor.dim())
    sizes, strides, _ = mode.shape_env.create_symbolic_sizes_strides_storage_offset(
        tensor, LocalSource(f"input_{number}"), symbolic_context=context
    )
    with mode:
        return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=tensor.device)
