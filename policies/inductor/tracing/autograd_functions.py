"""Functions with a gradient of their own (`torch.autograd.Function`), traced as their forward alone.

`torch.func` calls such a function only if it separates `setup_context` from `forward`, which those of models of
transformers (Bloom's GELU) do not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def forward_alone() -> Iterator[None]:
    """Lets `apply` of every autograd function run its forward, in a block that takes no gradients."""
    import torch

    function = torch.autograd.Function
    plain = vars(function)["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls.setup_context is not function.setup_context:
            return cls.forward(*args, **kwargs)
        return cls.forward(torch.autograd.function.FunctionCtx(), *args, **kwargs)

    function.apply = classmethod(apply)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        function.apply = plain  # type: ignore[method-assign]
