"""Programs of one launch that meet in memory: what one may see of another's writes, when nothing orders them.

The interpreter runs one program after the other, so that a read always finds every earlier write. On a GPU programs run
at the same time, and a read that no atomic operation orders after another program's write may find what was there
before the launch. Here it finds either, by the seed of the call: a kernel that relies on the order of its programs
comes out wrong. Orders are tracked as a race detector does it (happens-before, by segments between atomic operations).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from kernelwright.tools.replaying.interpreter.extents import Extents

MAX_SYNCHRONISING_ADDRESSES = 16
"""Addresses of one atomic operation that order programs; an operation on more of them adds numbers up and orders
nothing.
"""
MAX_SPINS = 256
"""Atomic operations and volatile loads by one program that runs alone, after which it is taken to wait for another."""


class NeedsInterleaving(BaseException):
    """Programs of this launch wait for each other or hand memory on by atomic operations: they have to run in turns."""


@dataclass
class Program:
    """One program of the launch, and what it has been ordered after."""

    number: int
    place: tuple[int, int, int]
    segment: int = 0
    sees: int = 0
    """A bit for every segment whose writes it sees."""
    waits: int = 0
    """Atomic operations and volatile loads so far."""


class Shadow:
    """What one storage held before the launch, and who wrote it since."""

    def __init__(self, start: int, size: int, grain: int) -> None:
        """grain: bytes of the elements that are told apart."""
        self.start, self.grain = start, grain
        self.bytes: Any = np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(start))
        self.before = self.bytes.copy()
        self.writers = np.zeros(-(-size // grain), np.int32)
        """The last segment that wrote an element; 0 for none."""

    def places(self, addresses: Any) -> Any:
        """The index in `writers` of the element at each address."""
        return (addresses - np.uint64(self.start)) // np.uint64(self.grain)

    def elements(self, addresses: Any) -> Any:
        """The same as `places`; of one address a plain number."""
        return (addresses.item() - self.start) // self.grain if addresses.size == 1 else self.places(addresses)

    def old(self, addresses: Any, dtype: Any) -> Any:
        """What lay there before the launch.

        Addresses that are no multiples of an element's size are read byte by byte.
        """
        offsets = (addresses - np.uint64(self.start)).astype(np.int64)
        rows = offsets[:, None] + np.arange(dtype.itemsize)
        return np.ascontiguousarray(self.before[rows]).view(dtype)[:, 0]


class Races:
    """The programs of one launch. Storages are numbered as in its Extents."""

    def __init__(self, extents: Extents, random: Random, *, interleaved: bool) -> None:
        self._extents, self._random, self._interleaved = extents, random, interleaved
        self._shadows: dict[int, Shadow] = {}
        self._owners = [-1]
        """The number of the program of each segment; segment 0 has none."""
        self._released: dict[int, int] = {}
        """Address -> the segments that whoever waits there is ordered after."""
        self.now = Program(-1, (0, 0, 0))
        self._updaters: dict[int, Any] = {}
        """For each storage, which program, from 1, was the last to touch an element by an atomic operation."""
        self._contended: set[int] = set()
        """Storages of which several programs have touched an element so."""

    def begin(self, program: Program) -> None:
        """Makes this program the current one, in a segment of its own."""
        self.now = program
        self._new_segment()

    def _new_segment(self) -> None:
        self.now.segment = len(self._owners)
        self.now.sees |= 1 << self.now.segment
        self._owners.append(self.now.number)

    # ------------------------------------------------------------------ memory
    def before_write(self, storage: int, size: int) -> None:
        """Has to be called before the first write to a storage, and may be called before any."""
        if storage not in self._shadows:
            start = self._extents.starts[storage]
            self._shadows[storage] = Shadow(start, self._extents.ends[storage] - start, size)

    def shadow(self, storage: int) -> Shadow:
        """Returns the shadow of a storage that is written."""
        return self._shadows[storage]

    def written(self, storage: int, addresses: Any) -> None:
        """Active addresses in one storage that the current program has written."""
        shadow = self._shadows[storage]
        shadow.writers[shadow.elements(addresses)] = self.now.segment

    def updated(self, storage: int, addresses: Any) -> None:
        """Active addresses in one storage, which is written, that the current program has touched atomically."""
        shadow, own = self._shadows[storage], self.now.number + 1
        if (updaters := self._updaters.get(storage)) is None:
            updaters = self._updaters[storage] = np.zeros_like(shadow.writers)
        elements = shadow.elements(addresses)
        before = updaters[elements]
        if before not in (0, own) if type(elements) is int else bool(((before != 0) & (before != own)).any()):
            self._contended.add(storage)
        updaters[elements] = own

    def writes_over_updates(self, storage: int, addresses: Any) -> bool:
        """Whether a plain store goes where several programs meet by atomic operations: what comes between such an
        operation and the store is lost, which programs that run one after the other do not show. Raises
        NeedsInterleaving where they do.
        """
        if (
            storage not in self._contended
            or not self._updaters[storage][self._shadows[storage].places(addresses)].any()
        ):
            return False
        if not self._interleaved:
            raise NeedsInterleaving
        return True

    def is_written(self, storage: int) -> bool:
        """Whether the launch has written to the storage, or is about to."""
        return storage in self._shadows

    def stale(self, storage: int, addresses: Any, dtype: Any) -> tuple[Any, Any] | None:
        """Which of the active addresses hold a write that the current program need not see, and what lay there before;
        None where it sees everything.
        """
        shadow = self._shadows[storage]
        writers = shadow.writers[shadow.places(addresses)]
        foreign = (writers != 0) & (writers != self.now.segment)
        if not foreign.any():
            return None
        segments = np.unique(writers[foreign]).tolist()
        hidden = [s for s in segments if not self.now.sees >> s & 1]
        if len(hidden) < len(segments) and not self._interleaved:
            self._check_alone([s for s in segments if self.now.sees >> s & 1])
        if not hidden or self._random.random() < 0.5:
            return None
        lanes = np.flatnonzero(np.isin(writers, hidden))
        return lanes, shadow.old(addresses[lanes], dtype)

    def _check_alone(self, seen: list[int]) -> None:
        """Memory that another program has handed on is right only if it is so in every order."""
        if any(self._owners[s] != self.now.number for s in seen):
            raise NeedsInterleaving

    def restore(self) -> None:
        """Puts every storage back to what it was before the launch."""
        for shadow in self._shadows.values():
            shadow.bytes[:] = shadow.before

    # ------------------------------------------------------------------ order
    def wait(self) -> None:
        """Is called before an atomic operation or a volatile load: a program that runs alone may not wait for ever."""
        self.now.waits += 1
        if not self._interleaved and self.now.waits > MAX_SPINS:
            raise NeedsInterleaving

    def acquire(self, addresses: Any) -> None:
        """The current program is ordered after whoever released one of these addresses."""
        if addresses.size <= MAX_SYNCHRONISING_ADDRESSES:
            for address in addresses.tolist():
                self.now.sees |= self._released.get(address, 0)

    def release(self, addresses: Any) -> None:
        """Whoever acquires one of these addresses later is ordered after all that the current program has done."""
        if addresses.size <= MAX_SYNCHRONISING_ADDRESSES:
            for address in addresses.tolist():
                self._released[address] = self._released.get(address, 0) | self.now.sees
            self._new_segment()
