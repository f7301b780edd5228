"""What is not needed for a moment lies in the host's memory meanwhile, where a GPU has no room for all at once."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kernelwright.tools.report import Failed, Fault

MIN_MOVED_BYTES = 64 << 20
"""Bytes of a tensor's memory from which on it is worth copying to the host."""

T = TypeVar("T")


def with_host_memory(
    compute: Callable[[], T], idle: Callable[[], Iterable[Any]], needed: Callable[[], Iterable[Any]]
) -> T:
    """What `compute` returns; where it finds no memory on a GPU it is asked again with the idle tensors on the host.

    idle: tensors that it does not use; those that share memory with a tensor of `needed` stay where they are.
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
    again: Callable[[], bool],
) -> T:  # fmt: skip
    """The answer of a candidate's process; where that finds no memory it is asked once more with the judge's idle
    tensors on the host.

    idle, needed: as for `with_host_memory`. again: whether it can be asked once more. Raises Failed.
    """
    try:
        return ask()
    except Failed as failed:
        if failed.failure.fault is not Fault.MEMORY or not again():
            raise
        tensors = [t for t in idle() if _worth_moving(t)]
        if not tensors:
            raise
    with moved_to_host(tensors, besides=needed()):
        return ask()


@contextmanager
def moved_to_host(tensors: Iterable[Any], besides: Iterable[Any] = ()) -> Iterator[int]:
    """The memory of the tensors, and of all their views, is the device's again until the block ends: nobody may use
    them inside. Then they hold what they held, at other addresses. Gives the bytes.

    besides: tensors whose memory stays. Raises torch.cuda.OutOfMemoryError where there is no room afterwards.
    """
    import torch

    stay = {t.untyped_storage().data_ptr() for t in besides if _has_storage(t)}
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors if _worth_moving(t)
    }
    away: list[tuple[Any, Any]] = []
    try:
        for address, storage in storages.items():
            if address not in stay:
                held = torch.empty(storage.nbytes(), dtype=torch.uint8, device="cpu").copy_(
                    _bytes_of(storage)
                )
                away.append((storage, held))
                storage.resize_(0)
        if any(storage.device.type == "cuda" for storage, _ in away):
            torch.cuda.empty_cache()  # the other process is to find it
        yield sum(held.numel() for _, held in away)
    finally:
        for storage, held in away:
            storage.resize_(held.numel())
            _bytes_of(storage).copy_(held)


def _has_storage(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_meta


def _worth_moving(value: Any) -> bool:
    """Whether it is a tensor in much memory of torch's own."""
    if not _has_storage(value):
        return False
    storage = value.untyped_storage()
    return bool(storage.nbytes() >= MIN_MOVED_BYTES and storage.resizable())


def _bytes_of(storage: Any) -> Any:
    import torch

    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(
        storage, 0, (storage.nbytes(),), (1,)
    )
