"""Work for the neighbours of a judging GPU: matrix products, copies to the host, all-reduces.

    python -m bench.several.load --kind products|copies|all_reduce --devices cuda:1[,cuda:2]

Reads `go` and `rest` from its input, a line each, and answers `going` and `resting` when that is so; ends with its
input. All-reduces run over NCCL on GPUs and gloo on a CPU, a process a device.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

SIDE = 8192
"""Of square bf16 matrices: a product takes 1.4 ms on an H100."""
ELEMENTS = 1 << 28
"""Of a bf16 tensor that is reduced or copied: 512 MiB."""
BURST = 20
"""Steps that are queued before the GPU is waited for."""
BEGIN_SECONDS = 30.0
"""Until the first burst of `go` is over, at most: NCCL connects its processes in it."""


class LoadSwitch:
    """What the input says, for the thread or processes that work."""

    def __init__(self, going: Any, ended: Any, begun: Any) -> None:
        self.going, self.ended, self.begun = going, ended, begun

    def read(self) -> None:
        """Until the input ends."""
        for line in sys.stdin:
            if line.strip() == "go":
                self.going.set()
                self.begun.wait(BEGIN_SECONDS)
                print("going", flush=True)
            else:
                self.going.clear()
                self.begun.clear()
                print("resting", flush=True)
        self.ended.set()
        self.going.set()


def step_of(kind: str, device: str) -> Callable[[], Any]:
    """One piece of work."""
    import torch

    small = device == "cpu"
    if kind == "products":
        side = 512 if small else SIDE
        a, b = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
        return lambda: a @ b
    elements = 1 << 20 if small else ELEMENTS
    there = torch.ones(elements, device=device, dtype=torch.bfloat16)
    if kind == "copies":
        here = torch.empty(elements, dtype=torch.bfloat16, pin_memory=not small)
        return lambda: here.copy_(there, non_blocking=True)
    import torch.distributed as dist

    return lambda: dist.all_reduce(there, op=dist.ReduceOp.MAX)


def work(switch: LoadSwitch, kind: str, device: str, decide: Any = None) -> None:
    """Bursts of steps while it is on.

    decide: the group in which all processes agree before each burst whether it is; not NCCL's, in which whoever waits
    keeps its GPU busy.
    """
    import torch

    if device != "cpu":
        torch.cuda.set_device(device)
    step = step_of(kind, device)
    while not _over(switch, decide):
        for _ in range(BURST):
            step()
        if device != "cpu":
            torch.cuda.synchronize()
        switch.begun.set()


def _over(switch: LoadSwitch, decide: Any) -> bool:
    """Waits until it is on; whether the end has come. The first process decides for all."""
    if decide is None:
        switch.going.wait()
        return bool(switch.ended.is_set())
    import torch
    import torch.distributed as dist

    if dist.get_rank() == 0:
        switch.going.wait()
    told = torch.tensor([int(switch.ended.is_set())])
    dist.broadcast(told, 0, group=decide)
    return bool(told.item())


def member(rank: int, devices: list[str], port: int, going: Any, ended: Any, begun: Any) -> None:
    """One process of an all-reduce."""
    import torch
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    on_gpu = devices[rank] != "cpu"
    if on_gpu:
        torch.cuda.set_device(devices[rank])
    dist.init_process_group("nccl" if on_gpu else "gloo", rank=rank, world_size=len(devices))
    work(
        LoadSwitch(going, ended, begun), "all_reduce", devices[rank], dist.new_group(backend="gloo")
    )
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=("products", "copies", "all_reduce"), required=True)
    parser.add_argument("--devices", type=lambda text: text.split(","), required=True)
    given = parser.parse_args()
    if given.kind == "all_reduce":
        import socket

        import torch.multiprocessing as multiprocessing

        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        context = multiprocessing.get_context("spawn")
        switch = LoadSwitch(context.Event(), context.Event(), context.Event())
        arguments = (given.devices, port, switch.going, switch.ended, switch.begun)
        multiprocessing.spawn(member, arguments, nprocs=len(given.devices), join=False, daemon=True)
        switch.read()
        return
    switch = LoadSwitch(threading.Event(), threading.Event(), threading.Event())
    for device in given.devices:
        threading.Thread(target=work, args=(switch, given.kind, device), daemon=True).start()
    switch.read()


if __name__ == "__main__":
    main()
