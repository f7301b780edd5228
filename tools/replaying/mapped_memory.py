"""The process's side of shared memory: maps what the judge owns, each allocation once, and lends tensors that end where
the judge's tensors end.
"""

from __future__ import annotations

import base64
import mmap
import os
from collections.abc import Sequence
from typing import Any

from kernelwright.tools.hardware import cuda_driver


class Mapped:
    """Allocations of the judge by the names that it gives them."""

    def __init__(self) -> None:
        self._blocks: dict[str, mmap.mmap] = {}
        self._devices: dict[str, int] = {}

    def receive(self, names: Sequence[str], descriptors: Sequence[int]) -> None:
        """Maps new allocations: on a CPU each by its descriptor, which is closed; on a GPU each by its name, which is
        the handle.
        """
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
        """Unmaps allocations. On a CPU one stays mapped for as long as a tensor lies in it."""
        for name in names:
            self._blocks.pop(name, None)
            if name in self._devices:
                cuda_driver.unmap(self._devices.pop(name))

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
            flat = cuda_driver.as_bytes(self._devices[spec["ipc"]] + spec["start"], span)
        elif span:
            flat = torch.frombuffer(self._blocks[spec["block"]], dtype=torch.uint8, count=span, offset=spec["start"])
        else:
            return torch.empty_strided(shape, stride, dtype=dtype)
        return flat.view(dtype).as_strided(shape, stride)
