"""Detects memory shared between programs while a launch runs them in batches.

If no program touches an element written by another one, every order of the programs and every
interleaving of their steps gives the same result, so a single order is representative. Otherwise,
or if this cannot be decided, the launch is undone and its programs run sequentially (launching.py,
races.py), which exposes races.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from kernelwright.tools.replaying.interpreter.guarded_memory import Guard
from kernelwright.tools.replaying.interpreter.races import (
    MAX_SPINS,
    MemoryOrder,
    NeedsInterleaving,
    Races,
)

MAX_REMEMBERED_READS = 8 << 20
"""Maximum number of read addresses remembered per launch."""
SEVERAL_READERS = -2
"""Value of `who` for an access shared by several programs."""


class CannotRunTogether(BaseException):
    """Raised if programs share memory, or if their independence cannot be shown."""


class ReadsOwnOutput(CannotRunTogether):
    """Raised if a launch reads a storage that it writes: accesses must be tracked per element."""


@dataclass
class BatchGuard(Guard):
    """Guard of a launch whose programs run in batches.

    who: program numbers, from 1: an array with an entry per position of the accesses' first axis, a
    single number for a single program, or SEVERAL_READERS.
    """

    who: Any = SEVERAL_READERS
    element_by_element: bool = False
    """Tracks reads per element, for launches that read storages which they write."""
    trouble: CannotRunTogether | None = None
    """Conflict of a program that ran alone. It is not raised at once: the program may be being
    recorded."""
    _written: Races | None = None
    _read: set[int] = field(default_factory=set)
    _reads: list[tuple[int, Any, Any, int]] = field(default_factory=list)
    _noted: int = 0
    _waits: int = 0

    def load(
        self,
        addresses: np.ndarray,
        mask: np.ndarray,
        other: Any,
        dtype: Any,
        volatile: bool,
        acquires: bool = False,
    ) -> Any:
        """Loads elements as `Guard.load` does, for a program or a batch."""
        if volatile:
            self._meets()
        return super().load(addresses, mask, other, dtype, False)

    def store(self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray) -> None:
        """Stores elements as `Guard.store` does. Raises CannotRunTogether if another program wrote
        them."""
        active = addresses[mask]
        if not active.size:
            return
        size, storage = values.dtype.itemsize, self._one_storage(active, values.dtype.itemsize)
        numbers = self._numbers(addresses, mask)
        if numbers is None:
            raise CannotRunTogether
        if storage >= 0:
            parts: list[tuple[int, Any]] = [(storage, slice(None))]
        else:
            storages = self._storages_to_write(active, size)
            parts = [(one, storages == one) for one in np.unique(storages).tolist()]
        accesses = [(one, self._elements(one, active[lanes], size), lanes) for one, lanes in parts]
        for one, elements, lanes in accesses:
            self._claim(one, elements, numbers if np.ndim(numbers) == 0 else numbers[lanes])
        super().store(addresses, values, mask)

    def atomic(
        self,
        addresses: np.ndarray,
        mask: Any | None,
        size: int,
        order: MemoryOrder,
        operation: Callable[[], Any],
    ) -> Any:
        """Runs an atomic operation as `Guard.atomic` does. Raises CannotRunTogether in a batch:
        programs that synchronise run sequentially."""
        active = addresses.reshape(-1) if mask is None else addresses[mask]
        if not active.size:
            return operation()
        self._meets()
        for storage in np.unique(self._storages_to_write(active, size)).tolist():
            self.writes.before_write(storage, size)  # all of it is taken back
        return super().atomic(addresses, mask, size, order, operation)

    @property
    def writes(self) -> Races:
        """Contents of storages before the launch, and the program that wrote each element."""
        if self._written is None:
            self._written = Races(self.extents, Random(0), interleaved=False)
        return self._written

    def require_apart(self) -> None:
        """Raises CannotRunTogether if a program read an element written by another program."""
        self.who = SEVERAL_READERS
        for storage, addresses, numbers, size in self._reads:
            if self.writes.is_written(storage):
                writers = self.writes.shadow(storage).writers[
                    self._element_indices(storage, addresses, size)
                ]
                if bool(((writers != 0) & (writers != numbers)).any()):
                    raise CannotRunTogether

    # ------------------------------------------------------------------ programs
    def _meets(self) -> None:
        """Handles an operation by which programs wait for each other."""
        if not self._is_alone():
            raise CannotRunTogether
        self.trouble = CannotRunTogether()
        self._waits += 1
        if self._waits > MAX_SPINS:
            raise NeedsInterleaving

    def _is_alone(self) -> bool:
        return np.ndim(self.who) == 0 and self.who != SEVERAL_READERS

    def _refuse(self, trouble: CannotRunTogether) -> None:
        """Raises the conflict in a batch; stores it as `trouble` for a program that runs alone."""
        if not self._is_alone():
            raise trouble
        if self.trouble is None or not isinstance(trouble, ReadsOwnOutput):
            self.trouble = trouble

    def _numbers(self, addresses: np.ndarray, mask: np.ndarray) -> Any:
        """Returns the program number of each active lane, or a single number; None if several
        programs share the access."""
        if np.ndim(self.who) == 0:
            return None if self.who == SEVERAL_READERS else self.who
        spread = self.who.reshape(-1, *(1,) * (addresses.ndim - 1))
        return np.broadcast_to(spread, addresses.shape)[mask]

    # ------------------------------------------------------------------ what is read and written
    def _elements(self, storage: int, addresses: np.ndarray, size: int) -> Any:
        """Returns indices of whole elements of a storage that is about to be written. Raises
        CannotRunTogether."""
        self.writes.before_write(storage, size)
        return self._element_indices(storage, addresses, size)

    def _element_indices(self, storage: int, addresses: np.ndarray, size: int) -> Any:
        shadow = self.writes.shadow(storage)
        if shadow.grain != size or bool(
            ((addresses - np.uint64(shadow.start)) % np.uint64(size)).any()
        ):
            self._refuse(CannotRunTogether())  # elements of two sizes, or between two of them
        return shadow.element_indices(addresses)

    def _claim(self, storage: int, elements: np.ndarray, numbers: Any) -> None:
        if storage in self._read and not self.element_by_element:
            self._refuse(ReadsOwnOutput())
        writers = self.writes.shadow(storage).writers
        before = writers[elements]
        if bool(((before != 0) & (before != numbers)).any()):
            self._refuse(CannotRunTogether())
        writers[elements] = numbers
        # Two lanes of the batch wrote the same element: the assignment kept only the last number.
        if np.ndim(numbers) and bool((writers[elements] != numbers).any()):
            raise CannotRunTogether

    def _note_read(
        self, storage: int, addresses: np.ndarray, mask: np.ndarray, size: int, active: Any | None
    ) -> None:
        if active is None and (storage < 0 or self.element_by_element):
            active = addresses[mask]
        storages = (
            [storage]
            if storage >= 0
            else np.unique(self.extents.storage_indices(active, size)).tolist()
        )
        if self.element_by_element:
            self._remember(
                active, self._numbers(addresses, mask), [s for s in storages if s >= 0], size
            )
            return
        self._read.update(storages)
        if self._written is not None and any(self._written.is_written(s) for s in storages):
            self._refuse(ReadsOwnOutput())

    def _remember(self, active: Any, numbers: Any, storages: list[int], size: int) -> None:
        self._noted += active.size
        if self._noted > MAX_REMEMBERED_READS:
            self._refuse(CannotRunTogether())
            return
        storage_of_lane = self.extents.storage_indices(active, size) if len(storages) > 1 else None
        for storage in storages:
            lanes = slice(None) if storage_of_lane is None else storage_of_lane == storage
            readers = (
                SEVERAL_READERS
                if numbers is None
                else numbers
                if np.ndim(numbers) == 0
                else numbers[lanes]
            )
            self._reads.append((storage, active[lanes], readers, size))
