"""The guard of a launch whose programs run many at a time: what they read and write is followed until it is known that
no program touched what another one wrote.

Where that holds, no order of the programs and no interleaving of their steps can give anything else, so that one
order is as good as all of them. Where it does not hold, or may not, the launch is taken back and its programs run
one after the other (launching.py, races.py), where a race comes out.
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
"""Addresses that were read and are remembered."""
SEVERAL_READERS = -2
"""Stands for more than one program that reads."""


class CannotRunTogether(BaseException):
    """These programs cannot run at the same time, or it is not known that they can."""


class ReadsOwnOutput(CannotRunTogether):
    """A launch reads what it writes: whether each program keeps to its own part has to be followed element by
    element.
    """


@dataclass
class BatchGuard(Guard):
    """`who`: the numbers, from 1, of the programs that the accesses belong to, one for each place of their first axis;
    one number where it is one program, or SEVERAL_READERS.
    """

    who: Any = SEVERAL_READERS
    element_by_element: bool = False
    """Whether reads are remembered, for launches that read what they write."""
    trouble: CannotRunTogether | None = None
    """What a program that ran alone did, and then went on: it may be recorded meanwhile."""
    _written: Races | None = None
    _read: set[int] = field(default_factory=set)
    _reads: list[tuple[int, Any, Any, int]] = field(default_factory=list)
    _noted: int = 0
    _waits: int = 0

    def load(
        self,
        addresses: Any,
        mask: Any,
        other: Any,
        dtype: Any,
        volatile: bool,
        acquires: bool = False,
    ) -> Any:
        """Does what `Guard.load` does, for one program or for several."""
        if volatile:
            self._meets()
        return super().load(addresses, mask, other, dtype, False)

    def store(self, addresses: Any, values: Any, mask: Any) -> None:
        """Does what `Guard.store` does. Raises CannotRunTogether where another program wrote there."""
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
            places = self._storages_to_write(active, size)
            parts = [(one, places == one) for one in np.unique(places).tolist()]
        found = [(one, self._elements(one, active[lanes], size), lanes) for one, lanes in parts]
        for one, elements, lanes in found:
            self._claim(one, elements, numbers if np.ndim(numbers) == 0 else numbers[lanes])
        super().store(addresses, values, mask)

    def atomic(
        self,
        addresses: Any,
        mask: Any | None,
        size: int,
        order: MemoryOrder,
        operation: Callable[[], Any],
    ) -> Any:
        """Does what `Guard.atomic` does. Programs that meet so run one after the other, later."""
        active = addresses.reshape(-1) if mask is None else addresses[mask]
        if not active.size:
            return operation()
        self._meets()
        for storage in np.unique(self._storages_to_write(active, size)).tolist():
            self.writes.before_write(storage, size)  # all of it is taken back
        return super().atomic(addresses, mask, size, order, operation)

    @property
    def writes(self) -> Races:
        """What storages held before the launch, and which program wrote what."""
        if self._written is None:
            self._written = Races(self.extents, Random(0), interleaved=False)
        return self._written

    def require_apart(self) -> None:
        """Raises CannotRunTogether where a program has read what another one wrote."""
        self.who = SEVERAL_READERS
        for storage, addresses, numbers, size in self._reads:
            if self.writes.is_written(storage):
                writers = self.writes.shadow(storage).writers[
                    self._places(storage, addresses, size)
                ]
                if bool(((writers != 0) & (writers != numbers)).any()):
                    raise CannotRunTogether

    # ------------------------------------------------------------------ programs
    def _meets(self) -> None:
        """An operation by which programs wait for each other."""
        if not self._is_alone():
            raise CannotRunTogether
        self.trouble = CannotRunTogether()
        self._waits += 1
        if self._waits > MAX_SPINS:
            raise NeedsInterleaving

    def _is_alone(self) -> bool:
        return np.ndim(self.who) == 0 and self.who != SEVERAL_READERS

    def _refuse(self, trouble: CannotRunTogether) -> None:
        """Raises it, but in a program that runs alone."""
        if not self._is_alone():
            raise trouble
        if self.trouble is None or not isinstance(trouble, ReadsOwnOutput):
            self.trouble = trouble

    def _numbers(self, addresses: Any, mask: Any) -> Any:
        """The program of each active lane, or of all; None where several programs made one access."""
        if np.ndim(self.who) == 0:
            return None if self.who == SEVERAL_READERS else self.who
        spread = self.who.reshape(-1, *(1,) * (addresses.ndim - 1))
        return np.broadcast_to(spread, addresses.shape)[mask]

    # ------------------------------------------------------------------ what is read and written
    def _elements(self, storage: int, addresses: Any, size: int) -> Any:
        """Numbers of whole elements of the storage, which is about to be written. Raises CannotRunTogether."""
        self.writes.before_write(storage, size)
        return self._places(storage, addresses, size)

    def _places(self, storage: int, addresses: Any, size: int) -> Any:
        shadow = self.writes.shadow(storage)
        if shadow.grain != size or bool(
            ((addresses - np.uint64(shadow.start)) % np.uint64(size)).any()
        ):
            self._refuse(CannotRunTogether())  # elements of two sizes, or between two of them
        return shadow.element_indices(addresses)

    def _claim(self, storage: int, elements: Any, numbers: Any) -> None:
        if storage in self._read and not self.element_by_element:
            self._refuse(ReadsOwnOutput())
        writers = self.writes.shadow(storage).writers
        before = writers[elements]
        if bool(((before != 0) & (before != numbers)).any()):
            self._refuse(CannotRunTogether())
        writers[elements] = numbers
        if np.ndim(numbers) and bool((writers[elements] != numbers).any()):
            raise CannotRunTogether

    def _note_read(
        self, storage: int, addresses: Any, mask: Any, size: int, active: Any | None
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
        places = self.extents.storage_indices(active, size) if len(storages) > 1 else None
        for storage in storages:
            lanes = slice(None) if places is None else places == storage
            own = (
                SEVERAL_READERS
                if numbers is None
                else numbers
                if np.ndim(numbers) == 0
                else numbers[lanes]
            )
            self._reads.append((storage, active[lanes], own, size))
