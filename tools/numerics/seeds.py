"""Makes runs of a reference reproducible: seeds every generator of a device, and makes sorting
stable.

torch.manual_seed is avoided: it imports dynamo (a second) and records a stack trace at each call.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types

MIN_NUMBERS_WITH_BOUNDS = 5
_turn = threading.RLock()
"""Lock on torch's default generators, which all threads of a process share."""


def seed_everything(seed: int) -> None:
    """Seeds the generators of the CPU and of all GPUs in use."""
    for generator in _generators():
        generator.manual_seed(seed)


@contextmanager
def seeded(seed: int, *, python: bool = False) -> Iterator[None]:
    """Sets the default generators to `seed` until the block ends, and then restores them.

    python: also Python's `random`, and numpy's generator if imported. No other thread enters
    meanwhile: judges work side by side in a process, beside the training of a policy.
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
    states = [(generator, generator.get_state()) for generator in _generators()]
    python_state = random.getstate() if python else None
    numpy_random = sys.modules["numpy"].random if python and "numpy" in sys.modules else None
    numpy_s = numpy_random.get_state() if numpy_random is not None else None
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)
        if python_state is not None:
            random.setstate(python_state)
        if numpy_random is not None:
            numpy_random.set_state(numpy_s)


@contextmanager
def generators_locked() -> Iterator[None]:
    """Keeps all threads from seeding, from draws by `seeded` and from running references until
    the block ends, which the capture of a CUDA graph requires.
    """
    with _turn:
        yield


def _generators() -> list[Any]:
    import torch

    on_gpus = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    return [torch.default_generator, *on_gpus]


def stable_sorts() -> Any:
    """Returns a mode in which `sort` and `argsort` are stable unless the call says otherwise.

    torch leaves the order of equal elements open, and its CPU sort shuffles them: values selected
    by position (a top-p mask over a row of zeros) would agree by chance only.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    sorting = {torch.sort, torch.argsort, torch.Tensor.sort, torch.Tensor.argsort}

    class Stable(TorchFunctionMode):
        def __torch_function__(
            self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
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
    """Returns True if the running sort is stable only because of `stable_sorts`."""
    return _order_is_open.get()


def bounds_are_drawn(device: str) -> Any:
    """Returns a mode in which `torch.randint` with at least MIN_NUMBERS_WITH_BOUNDS numbers
    includes the least and the largest of its range: a few tokens rarely name the last of 50,000
    rows of a table.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class WithBounds(TorchFunctionMode):
        def __torch_function__(
            self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
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
