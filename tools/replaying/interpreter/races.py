"""Tracks unordered memory accesses by programs of one launch (a race detector).

The interpreter runs one program after the other, so that a read always finds every earlier write.
On a GPU programs run at the same time: a read which no atomic operation orders after another
program's write may find the value from before the launch. Here the seed of the call picks either
value, and a kernel which relies on the order of its programs gives a wrong result. Orders are
tracked by happens-before, in segments between atomic operations: an atomic operation with release
semantics ends a segment, an acquire at the same address is ordered after this segment. Relaxed
operations, volatile accesses and plain stores order nothing, as on a GPU.

Example: a program stores a sum, then sets a flag with `atomic_xchg(flag, 1, sem="release")`. A
program which reads the flag by `atomic_add(flag, 0, sem="acquire")` sees the sum; by a volatile
load it sees the sum or the value before.
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
"""Maximum number of addresses of an atomic operation which orders programs; an operation on more
addresses (adding up numbers) orders nothing.
"""
MAX_SPINS = 256
"""Atomic operations and volatile loads of a program running alone, after which it is assumed to
wait for another.
"""


class NeedsInterleaving(BaseException):
    """Programs of this launch wait for each other or hand memory on by atomic operations: they have to run in turns."""


@dataclass
class Program:
    """Program of the launch, and the segments it is ordered after."""

    number: int
    grid_index: tuple[int, int, int]
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
    """Ordering semantics of an atomic operation."""

    acquires: bool
    releases: bool

    @classmethod
    def of(cls, semantic: Any) -> MemoryOrder:
        """Converts a MEM_SEMANTIC of Triton: ACQUIRE, RELEASE, ACQUIRE_RELEASE or RELAXED."""
        return cls(acquires="ACQUIRE" in semantic.name, releases="RELEASE" in semantic.name)


class Shadow:
    """Content of a storage before the launch, and the last writer of each element since."""

    def __init__(self, start: int, size: int, grain: int) -> None:
        """grain: bytes of the elements that are told apart."""
        self.start = start
        self.grain = grain
        self.bytes: Any = np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(start))
        self.before = self.bytes.copy()
        self.writers = np.zeros(-(-size // grain), np.int32)
        """The last segment that wrote an element; 0 for none."""

    def element_indices(self, addresses: np.ndarray) -> Any:
        """The index in `writers` of the element at each address."""
        return (addresses - np.uint64(self.start)) // np.uint64(self.grain)

    def elements(self, addresses: np.ndarray) -> Any:
        """Returns the index in `writers` of the element at each address; a plain number for a
        single address.
        """
        return (
            (addresses.item() - self.start) // self.grain
            if addresses.size == 1
            else self.element_indices(addresses)
        )

    def old(self, addresses: np.ndarray, dtype: np.dtype) -> Any:
        """Returns the values at the addresses before the launch.

        Unaligned addresses are read byte by byte.
        """
        offsets = (addresses - np.uint64(self.start)).astype(np.int64)
        rows = offsets[:, None] + np.arange(dtype.itemsize)
        return np.ascontiguousarray(self.before[rows]).view(dtype)[:, 0]


class Races:
    """Happens-before order of the programs of one launch. Storages are numbered as in its
    Extents.
    """

    def __init__(
        self,
        extents: Extents,
        random: Random,
        *,
        interleaved: bool,
        uses_atomic_results: bool = False,
    ) -> None:
        """Starts with no writes. uses_atomic_results: whether programs branch on results of
        atomic operations.
        """
        self._extents = extents
        self._random = random
        self._interleaved = interleaved
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
        """Storages in which a program overwrote another program's store without an order between
        them.
        """
        self._released_in_parallel: set[int] = set()
        """Segments that ended with a release, without a barrier behind the stores of several threads."""
        self.hands_on_without_barrier = False
        """Whether a program read values which another program published without a barrier."""

    def begin(self, program: Program) -> None:
        """Makes this program the current program, in a new segment."""
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

    def written(self, storage: int, addresses: np.ndarray) -> None:
        """Notes a write by the current program to active addresses of one storage."""
        shadow = self._shadows[storage]
        shadow.writers[shadow.elements(addresses)] = self.now.segment

    def updated(self, storage: int, addresses: np.ndarray) -> None:
        """Notes an atomic update by the current program of active addresses in a written storage."""
        shadow = self._shadows[storage]
        program_number = self.now.number + 1
        if (updaters := self._updaters.get(storage)) is None:
            updaters = self._updaters[storage] = np.zeros_like(shadow.writers)
        elements = shadow.elements(addresses)
        before = updaters[elements]
        if (
            before not in (0, program_number)
            if type(elements) is int
            else bool(((before != 0) & (before != program_number)).any())
        ):
            self._contended.add(storage)
            if self._uses_atomic_results:
                self._require_interleaving()
        updaters[elements] = program_number

    def _require_interleaving(self) -> None:
        if not self._interleaved:
            raise NeedsInterleaving

    def meets_others(self, storage: int, addresses: np.ndarray) -> bool:
        """Returns whether another program may run just before a plain store to a written storage.

        True if several programs update it atomically, or if another program's store is unordered.
        Raises NeedsInterleaving in the first case while programs run sequentially, which hides
        lost updates.
        """
        elements = self._shadows[storage].element_indices(addresses)
        if storage in self._contended and self._updaters[storage][elements].any():
            self._require_interleaving()
            return True
        if not self._hidden(self._shadows[storage].writers[elements]):
            return False
        self._overwritten.add(storage)
        return True

    def reads_overwritten(self, storage: int, addresses: np.ndarray) -> bool:
        """Returns whether a plain load reads elements which programs overwrite: another program
        may run before the load. Raises NeedsInterleaving while programs run sequentially.
        """
        if storage not in self._overwritten:
            return False
        shadow = self._shadows[storage]
        if not shadow.writers[shadow.element_indices(addresses)].any():
            return False
        self._require_interleaving()
        return True

    def _hidden(self, writers: np.ndarray) -> list[int]:
        """The segments among the writers that the current program need not see."""
        # Segment 0 stands for the content before the launch.
        foreign = (writers != 0) & (writers != self.now.segment)
        if not foreign.any():
            return []
        return [s for s in np.unique(writers[foreign]).tolist() if not self.now.sees >> s & 1]

    def is_written(self, storage: int) -> bool:
        """Whether the launch has written to the storage, or is about to."""
        return storage in self._shadows

    def stale(
        self, storage: int, addresses: np.ndarray, dtype: np.dtype, volatile: bool
    ) -> tuple[Any, Any] | None:
        """Returns indices of active addresses whose last write the current program need not see,
        and their values before the launch; None if every write is visible.
        """
        shadow = self._shadows[storage]
        writers = shadow.writers[shadow.element_indices(addresses)]
        foreign = (writers != 0) & (writers != self.now.segment)
        if not foreign.any():
            return None
        hidden = self._hidden(writers)
        self._handed_on([s for s in np.unique(writers[foreign]).tolist() if s not in hidden])
        if not hidden:
            return None
        # The seed decides for all unseen lanes of this load at once: the new values, or the old ones.
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

    def _handed_on(self, segments: Sequence[int]) -> None:
        """Notes a read of values written by segments before the current program. Values published
        by another program count only if right in every order.
        """
        foreign = [s for s in segments if self._owners[s] != self.now.number]
        if foreign:
            self._require_interleaving()
            self.hands_on_without_barrier |= not self._released_in_parallel.isdisjoint(foreign)

    def restore(self) -> None:
        """Restores every storage to its content before the launch."""
        for shadow in self._shadows.values():
            shadow.bytes[:] = shadow.before

    # ------------------------------------------------------------------ order
    def wait(self) -> None:
        """Is called before an atomic operation or a volatile load: a program that runs alone may not wait for ever."""
        self.now.waits += 1
        if not self._interleaved and self.now.waits > MAX_SPINS:
            raise NeedsInterleaving

    def acquire(self, addresses: np.ndarray) -> None:
        """Orders the current program after every release of these addresses."""
        if addresses.size <= MAX_SYNCHRONISING_ADDRESSES:
            for address in addresses.tolist():
                self.now.sees |= self._released.get(address, 0)

    def release(self, addresses: np.ndarray) -> None:
        """Publishes all effects of the current program to later acquires of these addresses."""
        if addresses.size <= MAX_SYNCHRONISING_ADDRESSES:
            for address in addresses.tolist():
                self._released[address] = self._released.get(address, 0) | self.now.sees
            if self.now.stored_in_parallel:
                self._released_in_parallel.add(self.now.segment)
            self._new_segment()
