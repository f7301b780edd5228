"""Chooses the winning lane among stores to the same address, from the seed of the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.tools.replaying.interpreter.open_choices import open_order

if TYPE_CHECKING:
    from types import ModuleType


def let_others_win(
    memory: ModuleType, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray
) -> None:
    """Stores some overwritten values again, in random order. memory: Triton's own loads and
    stores.
    """
    if addresses.size < 2 or _ascend(addresses):
        return
    stored = memory.load(addresses, mask, values, values.dtype)
    lost = np.flatnonzero(_bits(stored) != _bits(values))
    if not lost.size:
        return
    draws = open_order.current().stores
    again = draws.permutation(lost)[: draws.integers(lost.size + 1)]
    lanes = np.broadcast_to(np.True_, again.shape)
    memory.store(addresses.reshape(-1)[again], values.reshape(-1)[again], lanes)


def _ascend(addresses: np.ndarray) -> bool:
    """Returns True if the addresses are strictly ascending."""
    flat = addresses.reshape(-1)
    return bool((flat[1:] > flat[:-1]).all())


def _bits(values: np.ndarray) -> Any:
    return np.ascontiguousarray(values).reshape(-1).view(f"u{values.dtype.itemsize}")
