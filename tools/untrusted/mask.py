"""Hides tensor contents from host code on a CPU, where no profiler can say who computed what.

Every storage in a candidate's process is XORed with one byte except inside its kernels and inside the operators that are counted. Views, transposes
and copies move elements and never notice; numpy, ctypes, plain Python and torch behind the census's back compute on garbage, and the judge, in another
process, finds a wrong answer. On a GPU the profiler tells instead, and nothing is masked.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef


class Mask:
    """One a process. Closed storages hold masked bytes; `open` shows the real ones for as long as it is entered."""

    def __init__(self) -> None:
        self.byte = random.SystemRandom().randrange(0x11, 0xEE)
        self._closed: dict[int, tuple[StorageWeakRef, int]] = {}
        """By address: the storages that were masked last time they were touched, and their bytes."""

    def toggle(self, storages: Iterable[torch.UntypedStorage]) -> None:
        """XOR in place, each storage once."""
        for storage in unique(storages):
            address, size = storage.data_ptr(), storage.nbytes()
            if not address or not size:
                continue
            self._flip(address, size)
            known = self._closed.pop(address, None)
            if known is None or known[0].expired():
                self._closed[address] = (StorageWeakRef(storage), size)

    def close_new(self, storages: Iterable[torch.UntypedStorage]) -> None:
        """Masks what was made of Python numbers. What lies in memory that is masked already (`torch.from_numpy(x.numpy())`) stays so."""
        closed = [(a, a + size) for a, (known, size) in self._closed.items() if not known.expired()]
        self.toggle(s for s in storages if not any(a <= s.data_ptr() < end for a, end in closed))

    def _flip(self, address: int, size: int) -> None:
        view = np.frombuffer(memoryview((ctypes.c_char * size).from_address(address)), dtype=np.uint8)
        np.bitwise_xor(view, self.byte, out=view)

    @contextlib.contextmanager
    def open_all(self) -> Iterator[None]:
        """Everything that is masked and alive: weights, and whatever the candidate keeps between its calls."""
        opened = {a: known for a, known in self._closed.items() if not known[0].expired()}
        self._closed.clear()
        for address, (_, size) in opened.items():
            self._flip(address, size)
        try:
            yield
        finally:
            alive = {a: known for a, known in opened.items() if not known[0].expired()}
            for address, (_, size) in alive.items():
                self._flip(address, size)
            self._closed.update(alive)

    @contextlib.contextmanager
    def open(self, things: Any) -> Iterator[None]:
        """The tensors in a tree (tuples, lists, dicts, tensor descriptors) hold their real contents inside."""
        storages = unique(storages_in(things))
        self.toggle(storages)
        try:
            yield
        finally:
            self.toggle(storages)


def unique(storages: Iterable[torch.UntypedStorage]) -> list[torch.UntypedStorage]:
    return list({s.data_ptr(): s for s in storages}.values())


def storages_in(things: Any, depth: int = 0) -> list[torch.UntypedStorage]:
    """Of every CPU tensor in a tree."""
    if isinstance(things, torch.Tensor):
        return [things.untyped_storage()] if things.layout is torch.strided and things.device.type == "cpu" else []
    if depth > 6:
        return []
    if isinstance(things, dict):
        things = list(things.values())
    elif not isinstance(things, tuple | list):
        base = getattr(things, "base", None)
        return storages_in(base, depth + 1) if isinstance(base, torch.Tensor) else []
    return [s for thing in things for s in storages_in(thing, depth + 1)]
