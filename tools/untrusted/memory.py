"""The candidate's side of shared memory: maps what the judge owns."""

from __future__ import annotations

import base64
import mmap
import os
from typing import Any

import torch

from tools import cuda_driver


class Mapped:
    """Maps specs to tensors; each allocation once."""

    def __init__(self) -> None:
        self._by_handle: dict[str, torch.Tensor] = {}

    def tensor(self, spec: dict[str, Any], fds: list[int]) -> torch.Tensor:
        """The tensor of a spec. A CPU spec takes the next descriptor from `fds`."""
        memory = self._cuda(spec) if "ipc" in spec else _memfd(spec, fds)
        body = memory[spec["start"] : spec["start"] + spec["span"]]
        return body.view(getattr(torch, spec["dtype"])).as_strided(tuple(spec["shape"]), tuple(spec["stride"]))

    def _cuda(self, spec: dict[str, Any]) -> torch.Tensor:
        key = spec["ipc"]
        if key not in self._by_handle:
            address = cuda_driver.map_handle(base64.b64decode(key))
            self._by_handle[key] = cuda_driver.as_bytes(address, spec["size"])
        return self._by_handle[key]


def _memfd(spec: dict[str, Any], fds: list[int]) -> torch.Tensor:
    fd = fds.pop(0)
    try:
        return torch.frombuffer(mmap.mmap(fd, spec["size"]), dtype=torch.uint8)
    finally:
        os.close(fd)
