"""What makes two runs of a reference the same. Seeds every generator of a device, without torch.manual_seed: that one
imports dynamo (a second) and notes a stack trace at each call. Equal elements keep their order where it sorts.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

MIN_NUMBERS_WITH_BOUNDS = 5
_turn = threading.RLock()
"""torch's default generators are one for all threads of a process."""


def seed_everything(seed: int) -> None:
    """The CPU's generator and those of all GPUs that have been used."""
    for generator in _generators():
        generator.manual_seed(seed)


@contextmanager
def seeded(seed: int, *, python: bool = False) -> Iterator[None]:
    """The default generators set to `seed` until the block ends, and then as they were.

    python: that of Python's `random` too, and numpy's where it is imported.

    No other thread comes here meanwhile: judges work side by side in one process, and beside them what trains a policy.
    """
    with generators_locked(), generators_kept(python=python):
        seed_everything(seed)
        if python:
            random.seed(seed)
            if "numpy" in sys.modules:
                sys.modules["numpy"].random.seed(seed & 0xFFFFFFFF)
        yield


@contextmanager
def generators_kept(*, python: bool = False) -> Iterator[None]:
    """Restores the states of the generators after the block. python: as for `seeded`."""
    held = [(generator, generator.get_state()) for generator in _generators()]
    own = random.getstate() if python else None
    numpy_random = sys.modules["numpy"].random if python and "numpy" in sys.modules else None
    numpy_s = numpy_random.get_state() if numpy_random is not None else None
    try:
        yield
    finally:
        for generator, state in held:
            generator.set_state(state)
        if own is not None:
            random.setstate(own)
        if numpy_random is not None:
            numpy_random.set_state(numpy_s)


@contextmanager
def generators_locked() -> Iterator[None]:
    """Nobody seeds, draws by `seeded` or runs a reference until the block ends: a CUDA graph's capture does not bear
    it, whichever thread it is.
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
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            named = dict(kwargs or {})
            if (
                func in sorting
                and "stable" not in named
                and not any(isinstance(a, bool) for a in args[1:2])
            ):
                named["stable"] = True
                if len(args) > 1:  # the overload with `stable` takes dim and descending by name
                    named |= dict(zip(("dim", "descending"), args[1:], strict=False))
                    args = args[:1]
                token = _order_is_open.set(True)
                try:
                    return func(*args, **named)
                finally:
                    _order_is_open.reset(token)
            return func(*args, **named)

    return Stable()


_order_is_open: ContextVar[bool] = ContextVar("order of equal elements is open", default=False)


def is_order_open() -> bool:
    """Whether the sort that runs is stable only because of `stable_sorts`."""
    return _order_is_open.get()


def bounds_are_drawn(device: str) -> Any:
    """A mode in which `torch.randint` of at least MIN_NUMBERS_WITH_BOUNDS numbers gives the least and the largest of
    its range, too: of a table of 50,000 rows a few tokens never name the last. Nothing where nothing is drawn.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class WithBounds(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            drawn = func(*args, **(kwargs or {}))
            if (
                func is torch.randint
                and drawn.numel() >= MIN_NUMBERS_WITH_BOUNDS
                and drawn.is_contiguous()
            ):
                numbers = [a for a in args[:2] if isinstance(a, int)]
                low, high = (
                    numbers if len(numbers) == 2 else (0, *numbers) if numbers else (0, None)
                )
                if high is not None:
                    flat = drawn.view(-1)
                    flat[drawn.numel() // 3], flat[drawn.numel() // 2] = low, high - 1
            return drawn

    return nullcontext() if device == "meta" else WithBounds()
