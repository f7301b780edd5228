"""One training over several processes (accelerate, torchrun): who speaks, who writes, and on which GPU each works."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

from kernelwright.errors import InputError

MAX_PROCESS_WAIT = timedelta(hours=2)
"""Longest time that a process waits for the slowest process's round."""


class ProcessRank(NamedTuple):
    """The rank of this process among all."""

    rank: int
    world: int
    device: str

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and talks to the user."""
        return self.rank == 0


def process_rank(device: str) -> ProcessRank:
    """Returns the rank of this process, with the GPU that it works on: `device`, or one GPU for each of several
    processes. each of several processes gets a GPU of its own.

    Raises InputError where one process sees several GPUs.
    """
    from accelerate import PartialState

    state = PartialState(cpu=not device.startswith("cuda"))
    all_of_them = (
        "accelerate launch --config_file rl/configs/two_gpus.yaml -m kernelwright.rl train ..."
    )
    refuse_several_gpus(device, "train", f", or use them all with `{all_of_them}`")
    own = (
        f"cuda:{state.local_process_index}"
        if state.num_processes > 1 and device.startswith("cuda")
        else device
    )
    return ProcessRank(state.process_index, state.num_processes, own)


def refuse_several_gpus(device: str, command: str, otherwise: str = "") -> None:
    """Raises InputError where one process sees several GPUs: transformers would train copies on all of them
    (DataParallel), whatever `device` says.
    """
    import torch

    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    if alone and device.startswith("cuda") and torch.cuda.device_count() > 1:
        number = device.partition(":")[2] or "0"
        raise InputError(
            f"one process sees several GPUs: show it one (CUDA_VISIBLE_DEVICES={number} rl {command} ...){otherwise}"
        )


def weights_are_spread() -> bool:
    """Says whether FSDP or DeepSpeed holds the weights or the optimizer of this training."""
    return _launched_by("FSDP") or _launched_by("DEEPSPEED")


def _launched_by(name: str) -> bool:
    return os.environ.get(f"ACCELERATE_USE_{name}", "").lower() == "true"


def refuse_spread_weights() -> None:
    """Online every process samples from weights that it has whole.

    Raises InputError under FSDP, and under DeepSpeed's third stage.
    """
    if _launched_by("FSDP") or (
        _launched_by("DEEPSPEED") and os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3"
    ):
        raise InputError(
            "online training samples from whole weights, and this launch spreads them over the GPUs: use "
            "rl/configs/two_gpus.yaml, or collect with agent batch and train with rl train --from-trajectories DB"
        )


def only_in_first_process(place: ProcessRank, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function in the first process, and one that does nothing in the others; used for printing."""
    return function if place.first else lambda *arguments, **options: None


@contextmanager
def first_before_others(place: ProcessRank) -> Iterator[None]:
    """The first process goes through before the others enter."""
    from accelerate import PartialState

    if place.world == 1:
        yield
        return
    with PartialState().main_process_first():
        yield


@cache
def _waiting_room() -> Any:
    """Processes wait here for minutes: on the CPU.

    NCCL waits in a kernel, which would keep the GPU from the policy that samples there.
    """
    import torch.distributed as distributed

    return distributed.new_group(backend="gloo", timeout=MAX_PROCESS_WAIT)


def gather_from_all(place: ProcessRank, own: Callable[[], Any]) -> list[Any]:
    """Returns the results of `own` in all processes, in the order of their ranks.

    An exception in one process is raised in all of them, so that none waits for ever.
    """
    import torch.distributed as distributed

    found: Any = None
    trouble: Exception | None = None
    try:
        found = own()
    except Exception as error:
        trouble = error
    shares: list[Any] = [None] * place.world
    said = None if trouble is None else f"{type(trouble).__name__}: {trouble}"
    distributed.all_gather_object(shares, (found, said), group=_waiting_room())
    if trouble is not None:
        raise trouble
    if said := next((said for _, said in shares if said is not None), None):
        from kernelwright.tools.report import InfrastructureError

        raise InfrastructureError(f"another process of this training stopped: {said}")
    return [share for share, _ in shares]


def any_process_says(*flags: bool) -> tuple[bool, ...]:
    """Returns each flag as True where any process of this training has it set: a process that stopped alone would leave
    the others waiting for ever.
    """
    import torch
    import torch.distributed as distributed

    if (
        not (distributed.is_available() and distributed.is_initialized())
        or distributed.get_world_size() == 1
    ):
        return flags
    told = torch.tensor([int(flag) for flag in flags])
    distributed.all_reduce(told, op=distributed.ReduceOp.MAX, group=_waiting_room())
    return tuple(bool(flag) for flag in told)


def leave_process_group() -> None:
    """The processes of a training that has ended well let go of each other.

    NCCL warns of those that leave without a word.
    """
    import torch.distributed as distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
