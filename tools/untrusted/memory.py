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
        self._received: list[torch.Tensor] = []

    def receive(self, fds: list[int]) -> None:
        """Maps and closes the descriptors that came with a message; its specs say which they lie in."""
        self._received = [_memfd(fd) for fd in fds]

    def tensor(self, spec: dict[str, Any]) -> torch.Tensor:
        """The tensor of a spec of the message that was received last."""
        memory = self._cuda(spec) if "ipc" in spec else self._received[spec["fd"]]
        body = memory[spec["start"] : spec["start"] + spec["span"]]
        return body.view(getattr(torch, spec["dtype"])).as_strided(tuple(spec["shape"]), tuple(spec["stride"]))

    def _cuda(self, spec: dict[str, Any]) -> torch.Tensor:
        key = spec["ipc"]
        if key not in self._by_handle:
            address = cuda_driver.map_handle(base64.b64decode(key))
            self._by_handle[key] = cuda_driver.as_bytes(address, spec["size"])
        return self._by_handle[key]


def _memfd(fd: int) -> torch.Tensor:
    try:
        return torch.frombuffer(mmap.mmap(fd, os.fstat(fd).st_size), dtype=torch.uint8)
    finally:
        os.close(fd)
