"""Moves idle tensors to host memory while a GPU lacks room for all at once."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kernelwright.tools.report import Failed, Fault

MIN_MOVED_BYTES = 64 << 20
"""Minimum size, in bytes, of a tensor's memory worth moving to the host."""

T = TypeVar("T")


def with_host_memory(
    compute: Callable[[], T], idle: Callable[[], Iterable[Any]], needed: Callable[[], Iterable[Any]]
) -> T:
    """Returns the result of `compute`; after an out-of-memory error repeats it with the idle
    tensors on the host.

    idle: tensors not used by it; those that share memory with a tensor of `needed` stay.
    """
    import torch

    try:
        return compute()
    except torch.cuda.OutOfMemoryError as error:
        traceback.clear_frames(error.__traceback__)  # they hold what was made on the way
    with moved_to_host(idle(), besides=needed()):
        return compute()


def ask_with_host_memory(
    ask: Callable[[], T], idle: Callable[[], Iterable[Any]], needed: Callable[[], Iterable[Any]],
    can_repeat: Callable[[], bool],
) -> T:  # fmt: skip
    """Returns the answer of a candidate's process; after an out-of-memory error asks again with
    idle tensors on the host.

    idle, needed: as for `with_host_memory`. again: returns True if a repetition is possible. Raises
    Failed.
    """
    try:
        return ask()
    except Failed as failed:
        if failed.failure.fault is not Fault.MEMORY or not can_repeat():
            raise
        tensors = [t for t in idle() if _worth_moving(t)]
        if not tensors:
            raise
    with moved_to_host(tensors, besides=needed()):
        return ask()


@contextmanager
def moved_to_host(tensors: Iterable[Any], besides: Iterable[Any] = ()) -> Iterator[int]:
    """Context manager that moves the memory of tensors and all their views to the host; yields the
    number of bytes.

    The tensors may not be used inside; afterwards they have equal values at other addresses.
    besides: tensors whose memory stays. Raises torch.cuda.OutOfMemoryError if there is no room
    afterwards.
    """
    import torch

    stay = {t.untyped_storage().data_ptr() for t in besides if _has_storage(t)}
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors if _worth_moving(t)
    }
    moved: list[tuple[Any, Any]] = []
    try:
        for address, storage in storages.items():
            if address not in stay:
                host_copy = torch.empty(storage.nbytes(), dtype=torch.uint8, device="cpu").copy_(
                    _bytes_of(storage)
                )
                moved.append((storage, host_copy))
                storage.resize_(0)
        if any(storage.device.type == "cuda" for storage, _ in moved):
            torch.cuda.empty_cache()  # the other process is to find it
        yield sum(host_copy.numel() for _, host_copy in moved)
    finally:
        for storage, host_copy in moved:
            storage.resize_(host_copy.numel())
            _bytes_of(storage).copy_(host_copy)


def _has_storage(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_meta


def _worth_moving(value: Any) -> bool:
    """Returns True for a tensor in a large allocation of torch."""
    if not _has_storage(value):
        return False
    storage = value.untyped_storage()
    return bool(storage.nbytes() >= MIN_MOVED_BYTES and storage.resizable())


def _bytes_of(storage: Any) -> Any:
    import torch

    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(
        storage, 0, (storage.nbytes(),), (1,)
    )
