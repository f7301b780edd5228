"""What a reference may set for all of torch, such as `torch.backends.cuda.matmul.allow_tf32 = True` at the top of its
file: it holds for that problem, and not for the next one in the same process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


def _states() -> list[tuple[Any, str, Any]]:
    """(owner, name, value) of every switch that this torch has."""
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    names = (
        (matmul, "allow_tf32"),
        (matmul, "allow_fp16_reduced_precision_reduction"),
        (matmul, "allow_bf16_reduced_precision_reduction"),
        (cudnn, "allow_tf32"),
        (cudnn, "enabled"),
        (cudnn, "benchmark"),
        (cudnn, "deterministic"),
    )
    return [(owner, name, getattr(owner, name)) for owner, name in names]


@contextlib.contextmanager
def switches_kept() -> Iterator[None]:
    """Afterwards the precision switches and the default type are what they were; there is no default device then."""
    import torch

    held, dtype = _states(), torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        for owner, name, value in held:
            if getattr(owner, name) != value:
                setattr(owner, name, value)
        torch.set_default_dtype(dtype)
        torch.set_default_device(None)
        torch.use_deterministic_algorithms(deterministic)
