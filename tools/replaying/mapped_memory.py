"""Maps the judge's shared memory in the replaying process. Each allocation is mapped once; tensors
end where the judge's end."""

from __future__ import annotations

import base64
import gc
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import Any

from kernelwright.tools.hardware import cuda_driver


class Mapped:
    """The judge's allocations by name, as mapped in this process."""

    def __init__(self) -> None:
        self._blocks: dict[str, mmap.mmap] = {}
        self._devices: dict[str, int] = {}
        self._lent: dict[str, weakref.WeakSet[Any]] = {}
        """Objects held by tensors in each allocation on a GPU."""
        self._leaving: set[str] = set()
        """Allocations on a GPU that the judge has released while tensors still use them."""

    def receive(self, names: Sequence[str], descriptors: Sequence[int]) -> None:
        """Maps new allocations: on a CPU by descriptors, which are closed; on a GPU by name, which
        is the IPC handle."""
        self._leaving.difference_update(names)
        if not descriptors:
            for name in (n for n in names if n not in self._devices):
                self._devices[name] = cuda_driver.map_handle(base64.b64decode(name))
            return
        for name, descriptor in zip(names, descriptors, strict=True):
            try:
                self._blocks[name] = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
            finally:
                os.close(descriptor)

    def forget(self, names: Sequence[str]) -> None:
        """Unmaps allocations, each once no tensor uses it.

        Inputs kept by a first call, and the clock's saved tensors, are read after later messages
        that do not name them.
        """
        for name in names:
            self._blocks.pop(name, None)
        self._leaving.update(name for name in names if name in self._devices)
        for name in [leaving for leaving in self._leaving if not self._lent.get(leaving)]:
            self._leaving.discard(name)
            self._lent.pop(name, None)
            cuda_driver.unmap(self._devices.pop(name))

    def held(self, names: Sequence[str]) -> list[str]:
        """Returns those of the allocations that are mapped."""
        return [name for name in names if name in self._devices or name in self._blocks]

    def forget_all(self) -> int:
        """Unmaps all unused allocations; returns the number of those still in use."""
        names = [*self._blocks, *self._devices]
        self.forget(names)
        if self._devices:
            gc.collect()  # a tensor may be held in a circle
            self.forget(names)
        return len(self._devices)

    def tensor(self, spec: dict[str, Any]) -> Any:
        """Returns the tensor of a spec (tools/references/shared_tensors.py).

        Its storage has exactly the spec's extent, so that operators cannot reach memory beside it.
        """
        import torch

        dtype = getattr(torch, spec["dtype"])
        span = spec["span"]
        shape = tuple(spec["shape"])
        stride = tuple(spec["stride"])
        if "ipc" in spec:
            if not span:
                return torch.empty_strided(shape, stride, dtype=dtype, device="cuda")
            flat, holder = cuda_driver.lend(self._devices[spec["ipc"]] + spec["start"], span)
            self._lent.setdefault(spec["ipc"], weakref.WeakSet()).add(holder)
        elif span:
            flat = torch.frombuffer(
                self._blocks[spec["block"]], dtype=torch.uint8, count=span, offset=spec["start"]
            )
        else:
            return torch.empty_strided(shape, stride, dtype=dtype)
        elements = flat.view(dtype)
        return elements.as_strided(shape, stride, elements.storage_offset() + spec["offset"])
