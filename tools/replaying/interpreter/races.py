"""Programs of one launch that meet in memory: what one may see of another's writes, when nothing orders them.

The interpreter runs one program after the other, so that a read always finds every earlier write. On a GPU programs run
at the same time, and a read that no atomic operation orders after another program's write may find what was there
before the launch. Here it finds either, by the seed of the call: a kernel that relies on the order of its programs
comes out wrong. Orders are tracked as a race detector does it (happens-before, by segments between atomic operations):
an atomic operation that releases ends a segment, and one that acquires at the same address is ordered after it.
Relaxed operations, volatile accesses and plain stores order nothing, as on a GPU.

Example: a program stores a sum, then sets a flag with `atomic_xchg(flag, 1, sem="release")`. Another one that finds the
flag by `atomic_add(flag, 0, sem="acquire")` sees the sum; by a volatile load it sees the sum or what lay there before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

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
    observed: set[int] = field(default_factory=set)
    """Addresses at which a volatile load has found another program's write: it finds nothing older there again."""
    stored_in_parallel: bool = False
    """Whether several of its threads have stored since its last barrier."""


class MemoryOrder(NamedTuple):
    """What an atomic operation orders."""

    acquires: bool
    releases: bool

    @classmethod
    def of(cls, semantic: Any) -> MemoryOrder:
        """Returns what a MEM_SEMANTIC of Triton orders: ACQUIRE, RELEASE, ACQUIRE_RELEASE or RELAXED."""
        return cls(acquires="ACQUIRE" in semantic.name, releases="RELEASE" in semantic.name)


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
        return (
            (addresses.item() - self.start) // self.grain
            if addresses.size == 1
            else self.places(addresses)
        )

    def old(self, addresses: Any, dtype: Any) -> Any:
        """What lay there before the launch.

        Addresses that are no multiples of an element's size are read byte by byte.
        """
        offsets = (addresses - np.uint64(self.start)).astype(np.int64)
        rows = offsets[:, None] + np.arange(dtype.itemsize)
        return np.ascontiguousarray(self.before[rows]).view(dtype)[:, 0]


class Races:
    """The programs of one launch. Storages are numbered as in its Extents."""

    def __init__(
        self,
        extents: Extents,
        random: Random,
        *,
        interleaved: bool,
        uses_atomic_results: bool = False,
    ) -> None:
        """uses_atomic_results: whether programs act upon what atomic operations return."""
        self._extents, self._random, self._interleaved = extents, random, interleaved
        self._uses_atomic_results = uses_atomic_results
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
        self._overwritten: set[int] = set()
        """Storages in which a program has stored over what another one stored, and nothing orders the two."""
        self._released_in_parallel: set[int] = set()
        """Segments that ended with a release, without a barrier behind the stores of several threads."""
        self.hands_on_without_barrier = False
        """Whether a program has read what another one handed on so."""

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
        if (
            before not in (0, own)
            if type(elements) is int
            else bool(((before != 0) & (before != own)).any())
        ):
            self._contended.add(storage)
            if self._uses_atomic_results:
                self._require_interleaving()
        updaters[elements] = own

    def _require_interleaving(self) -> None:
        if not self._interleaved:
            raise NeedsInterleaving

    def meets_others(self, storage: int, addresses: Any) -> bool:
        """Whether another program may come in just before a plain store to a storage that is written: where several
        programs meet by atomic operations, or where another one has stored and nothing orders the two. Raises
        NeedsInterleaving where programs run one after the other, which does not show what is lost in the first case.
        """
        places = self._shadows[storage].places(addresses)
        if storage in self._contended and self._updaters[storage][places].any():
            self._require_interleaving()
            return True
        if not self._hidden(self._shadows[storage].writers[places]):
            return False
        self._overwritten.add(storage)
        return True

    def reads_overwritten(self, storage: int, addresses: Any) -> bool:
        """Whether a plain load reads where programs store over each other's values: another one may come in before it.
        Raises NeedsInterleaving where programs run one after the other.
        """
        if storage not in self._overwritten:
            return False
        shadow = self._shadows[storage]
        if not shadow.writers[shadow.places(addresses)].any():
            return False
        self._require_interleaving()
        return True

    def _hidden(self, writers: Any) -> list[int]:
        """The segments among the writers that the current program need not see."""
        foreign = (writers != 0) & (writers != self.now.segment)
        if not foreign.any():
            return []
        return [s for s in np.unique(writers[foreign]).tolist() if not self.now.sees >> s & 1]

    def is_written(self, storage: int) -> bool:
        """Whether the launch has written to the storage, or is about to."""
        return storage in self._shadows

    def stale(
        self, storage: int, addresses: Any, dtype: Any, volatile: bool
    ) -> tuple[Any, Any] | None:
        """Which of the active addresses hold a write that the current program need not see, and what lay there before;
        None where it sees everything.
        """
        shadow = self._shadows[storage]
        writers = shadow.writers[shadow.places(addresses)]
        foreign = (writers != 0) & (writers != self.now.segment)
        if not foreign.any():
            return None
        hidden = self._hidden(writers)
        self._handed_on([s for s in np.unique(writers[foreign]).tolist() if s not in hidden])
        if not hidden:
            return None
        unseen = np.isin(writers, hidden)
        if volatile:
            self._require_interleaving()
            unseen &= ~np.isin(addresses, list(self.now.observed))
        if self._random.random() < 0.5:
            if volatile:
                self.now.observed.update(addresses[unseen].tolist())
            return None
        lanes = np.flatnonzero(unseen)
        return lanes, shadow.old(addresses[lanes], dtype)

    def _handed_on(self, seen: Sequence[int]) -> None:
        """Notes a read of what these segments wrote, which the current program is ordered after. What another program
        has handed on is right only if it is so in every order.
        """
        others = [s for s in seen if self._owners[s] != self.now.number]
        if others:
            self._require_interleaving()
            self.hands_on_without_barrier |= not self._released_in_parallel.isdisjoint(others)

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
            if self.now.stored_in_parallel:
                self._released_in_parallel.add(self.now.segment)
            self._new_segment()
