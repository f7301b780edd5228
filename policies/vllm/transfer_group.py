"""The process group of a weight transfer: the trainer is rank 0, the workers of a vLLM server follow.

Trainer and workers belong to no common group of `torch.distributed`, so the group is built from a
store of its own. Any process that reaches the store's port can join it: transfer within a network
of trusted machines.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

TRANSFER_TIMEOUT = timedelta(minutes=10)
"""Longest wait for all members to join, and for a tensor to arrive."""


class TransferAddress(NamedTuple):
    """Where the members of a transfer meet."""

    host: str
    port: int
    members: int
    backend: str
    """`nccl` between GPUs, otherwise `gloo`."""


class TransferGroup:
    """A member of a weight transfer."""

    def __init__(self, address: TransferAddress, rank: int, store: Any, device: str) -> None:
        """Joins the group; waits until all members have come."""
        import torch.distributed as distributed

        self.device = device
        prefixed = distributed.PrefixStore("weights", store)
        if address.backend == "nccl":
            nccl: Any = distributed.ProcessGroupNCCL
            options = nccl.Options()
            options._timeout = TRANSFER_TIMEOUT
            self._group: Any = nccl(prefixed, rank, address.members, options)
            return
        # torch's stubs do not know the options of this class.
        gloo: Any = distributed.ProcessGroupGloo
        options = gloo._Options()
        options._timeout = TRANSFER_TIMEOUT
        own_host = address_towards(address.host)
        options._devices = [gloo.create_device(hostname=own_host)]
        self._group = gloo(prefixed, rank, address.members, options)

    def broadcast(self, tensor: torch.Tensor) -> Any:
        """Starts sending a contiguous tensor (rank 0), or receiving into it. Returns torch's Work."""
        import torch.distributed as distributed

        options = distributed.BroadcastOptions()
        options.rootRank = 0
        return self._group.broadcast([tensor], options)


def listening_store(members: int) -> Any:
    """Returns a store that listens on a free port of this machine."""
    import torch.distributed as distributed

    return distributed.TCPStore(
        "0.0.0.0", 0, members, True, TRANSFER_TIMEOUT, wait_for_workers=False
    )


def joined_store(address: TransferAddress) -> Any:
    """Returns the trainer's store."""
    import torch.distributed as distributed

    return distributed.TCPStore(
        address.host, address.port, address.members, False, TRANSFER_TIMEOUT
    )


def address_towards(host: str) -> str:
    """Returns this machine's address on the route to `host`. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 1))
        return str(probe.getsockname()[0])
