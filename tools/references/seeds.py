"""Seeds every generator of a device, without torch.manual_seed: that one imports dynamo (a second) and notes a
stack trace at each call.
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
