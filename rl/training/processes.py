"""Coordinates the processes of a distributed training (accelerate, torchrun): which process
prints, which writes, and the GPU of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple, TypeVar

from kernelwright.errors import InputError

T = TypeVar("T")

MAX_PROCESS_WAIT = timedelta(hours=2)
"""Longest time a process waits for the slowest process's round."""


class ProcessRank(NamedTuple):
    """Rank and device of this process."""

    rank: int = 0
    world: int = 1
    device: str = "cpu"

    @property
    def first(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return self.rank == 0


ALONE = ProcessRank()
"""The rank of a process that trains by itself."""


def process_rank(device: str) -> ProcessRank:
    """Returns the rank of this process with its device: `device`, or a GPU for each of several
    processes.

    Raises InputError if a single process sees several GPUs.
    """
    from accelerate import PartialState

    on_gpu = device.startswith("cuda")
    if os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        raise InputError("DeepSpeed is not supported: shard with --gpus N, or rl/configs/fsdp.yaml")
    state = PartialState(cpu=not on_gpu)
    refuse_several_gpus(device)
    if is_sharded() and not on_gpu:
        _let_accelerate_shard_on_cpus()
    if on_gpu and state.num_processes > 1:
        device = f"cuda:{state.local_process_index}"
    return ProcessRank(state.process_index, state.num_processes, device)


def refuse_several_gpus(device: str) -> None:
    """Raises InputError if a single process sees several GPUs: transformers would train copies on
    all of them (DataParallel), whatever `device` says.
    """
    import torch

    is_alone = os.environ.get("WORLD_SIZE", "1") == "1"
    gpus = torch.cuda.device_count() if is_alone and device.startswith("cuda") else 1
    if gpus > 1:
        number = device.partition(":")[2] or "0"
        raise InputError(
            f"one process sees {gpus} GPUs: train on all of them with --gpus {gpus}, or show it one "
            f"(CUDA_VISIBLE_DEVICES={number})"
        )


def is_sharded() -> bool:
    """Returns whether this training's launcher asks for weights sharded over the processes."""
    return os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"


def sharding_fields() -> dict[str, Any]:
    """Returns the fields of a trainer's config that a sharded training needs.

    Gradients are reduced after each part of a step: held back to the last part, they would be whole
    in every process.
    """
    if not is_sharded():
        return {}
    return {"accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}}}


def _let_accelerate_shard_on_cpus() -> None:
    """Makes accelerate shard over processes on CPUs, too.

    accelerate 1.15 takes its FSDP path on accelerators alone; torch's `fully_shard` runs over gloo
    as well, and a rehearsal on CPUs must take the same path as a training on GPUs.
    """
    from accelerate.state import AcceleratorState
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

    original = AcceleratorState.__init__

    def initialize(self: Any, *arguments: Any, **options: Any) -> None:
        """Initializes the state, and declares CPUs sharded."""
        original(self, *arguments, **options)
        if self.distributed_type is DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.FSDP
            self.fsdp_plugin = FullyShardedDataParallelPlugin()

    AcceleratorState.__init__ = initialize


def only_in_first_process(process: ProcessRank, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function` in the first process, and a function without effect in the others; used
    for printing.
    """
    return function if process.first else lambda *arguments, **options: None


@contextmanager
def first_before_others(process: ProcessRank) -> Iterator[None]:
    """Lets the first process finish the block before the others enter."""
    from accelerate import PartialState

    if process.world == 1:
        yield
        return
    with PartialState().main_process_first():
        yield


@cache
def _waiting_room() -> Any:
    """Returns a process group on the CPU in which processes may wait for minutes.

    NCCL waits in a kernel, which would keep the GPU from the policy that samples there.
    """
    import torch.distributed as distributed

    return distributed.new_group(backend="gloo", timeout=MAX_PROCESS_WAIT)


def gather_from_all(process: ProcessRank, compute: Callable[[], T]) -> list[T]:
    """Returns the results of `compute` in all processes, in the order of their ranks.

    An exception in one process is raised in all of them, so no process waits forever.
    """
    import torch.distributed as distributed

    if process.world == 1:
        return [compute()]
    result: T | None = None
    # An error must not skip the gathering below: the other processes wait there.
    own_error: Exception | None = None
    try:
        result = compute()
    except Exception as error:
        own_error = error
    message = None if own_error is None else f"{type(own_error).__name__}: {own_error}"
    shares: list[Any] = [None] * process.world
    distributed.all_gather_object(shares, (result, message), group=_waiting_room())
    if own_error is not None:
        raise own_error
    results = []
    for share, message in shares:
        if message is not None:
            from kernelwright.tools.report import InfrastructureError

            raise InfrastructureError(f"another process of this training stopped: {message}")
        results.append(share)
    return results


def told_by_first(process: ProcessRank, compute: Callable[[], T]) -> T:
    """Returns the result of `compute` of the first process in all processes, once all are here."""
    # Two meetings: the first process must not begin before the others have come.
    gather_from_all(process, lambda: None)
    result: T | None = gather_from_all(process, lambda: compute() if process.first else None)[0]
    return result  # type: ignore[return-value]


def any_process_says(*flags: bool) -> tuple[bool, ...]:
    """Returns each flag as True if any process of this training has set it. A process stopping
    alone would leave the others waiting forever.
    """
    import torch
    import torch.distributed as distributed

    is_distributed = distributed.is_available() and distributed.is_initialized()
    if not is_distributed or distributed.get_world_size() == 1:
        return flags
    # The maximum over all processes is 1 if any process set the flag.
    totals = torch.tensor([int(flag) for flag in flags])
    distributed.all_reduce(totals, op=distributed.ReduceOp.MAX, group=_waiting_room())
    return tuple(bool(flag) for flag in totals)


def leave_process_group() -> None:
    """Destroys the process group at the end of a training. NCCL warns of processes that exit
    without this call.
    """
    import torch.distributed as distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
