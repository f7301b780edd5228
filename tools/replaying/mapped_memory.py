"""The process's side of shared memory: maps what the judge owns, each allocation once, and lends tensors that end where
the judge's tensors end.
"""

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
    """Allocations of the judge by the names that it gives them."""

    def __init__(self) -> None:
        self._blocks: dict[str, mmap.mmap] = {}
        self._devices: dict[str, int] = {}
        self._lent: dict[str, weakref.WeakSet[Any]] = {}
        """What the tensors that lie in an allocation on a GPU hold."""
        self._leaving: set[str] = set()
        """Allocations on a GPU that the judge has let go of, and that tensors lie in."""

    def receive(self, names: Sequence[str], descriptors: Sequence[int]) -> None:
        """Maps new allocations: on a CPU each by its descriptor, which is closed; on a GPU each by its name, which is
        the handle.
        """
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
        """Unmaps allocations, each when no tensor lies in it any more: what a first call kept of its inputs, and what
        the clock restores from, is read after messages that do not name it.
        """
        for name in names:
            self._blocks.pop(name, None)
        self._leaving.update(name for name in names if name in self._devices)
        for name in [one for one in self._leaving if not self._lent.get(one)]:
            self._leaving.discard(name)
            self._lent.pop(name, None)
            cuda_driver.unmap(self._devices.pop(name))

    def held(self, names: Sequence[str]) -> list[str]:
        """Returns those of the allocations that are mapped."""
        return [name for name in names if name in self._devices or name in self._blocks]

    def forget_all(self) -> int:
        """Unmaps every allocation that no tensor lies in; how many are left."""
        names = [*self._blocks, *self._devices]
        self.forget(names)
        if self._devices:
            gc.collect()  # a tensor may be held in a circle
            self.forget(names)
        return len(self._devices)

    def tensor(self, spec: dict[str, Any]) -> Any:
        """The tensor of a spec (tools/references/shared_tensors.py).

        Its storage is its own extent: what lies beside it is out of reach of every operator.
        """
        import torch

        dtype, span = getattr(torch, spec["dtype"]), spec["span"]
        shape, stride = tuple(spec["shape"]), tuple(spec["stride"])
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
