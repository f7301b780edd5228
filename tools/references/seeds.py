"""What makes two runs of a reference the same. Seeds every generator of a device, without torch.manual_seed: that one
imports dynamo (a second) and notes a stack trace at each call. Equal elements keep their order where it sorts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_turn = threading.RLock()
"""torch's default generators are one for all threads of a process."""


def seed_everything(seed: int) -> None:
    """The CPU's generator and those of all GPUs that have been used."""
    for generator in _generators():
        generator.manual_seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The default generators set to `seed` until the block ends, and then as they were.

    No other thread comes here meanwhile: judges work side by side in one process, and beside them what trains a policy.
    """
    with _turn:
        held = [(generator, generator.get_state()) for generator in _generators()]
        seed_everything(seed)
        try:
            yield
        finally:
            for generator, state in held:
                generator.set_state(state)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Nobody seeds or draws by `seeded` until the block ends: a CUDA graph's capture does not bear it, whichever
    thread it is.
    """
    with _turn:
        yield


def _generators() -> list[Any]:
    import torch

    on_gpus = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    return [torch.default_generator, *on_gpus]


def stable_sorts() -> Any:
    """A mode in which `sort` and `argsort` are stable unless the call itself says otherwise.

    torch leaves open which of equal elements comes first, and its CPU sort shuffles them: what follows by place (a
    top-p mask over a row of zeros) would be right by chance only.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    sorting = {torch.sort, torch.argsort, torch.Tensor.sort, torch.Tensor.argsort}

    class Stable(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = dict(kwargs or {})
            if func in sorting and "stable" not in named and not any(isinstance(a, bool) for a in args[1:2]):
                named["stable"] = True
                if len(args) > 1:  # the overload with `stable` takes dim and descending by name
                    named |= dict(zip(("dim", "descending"), args[1:], strict=False))
                    args = args[:1]
            return func(*args, **named)

    return Stable()
