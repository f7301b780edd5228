"""Chooses the GPUs of this machine that one online training uses: for training, for sampling, for judging.

transformers copies the model onto every GPU that a process sees. So this process is shown the trainer's alone, and each
process that it starts for sampling or judging is shown its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from kernelwright.agent.runtime.arguments import choose_device
from kernelwright.errors import InputError

VISIBLE_DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"


def spread(asked: dict[str, Any], known: Callable[[str], str] = choose_device) -> dict[str, Any]:
    """Fields of OnlineOptions, with the GPUs as their processes see them.

    asked: the same, with `sampling_device`, and `judge` perhaps naming several GPUs. known: a device by its full name;
    raises InputError for one that is not there. Where several GPUs are asked for, this process sees one from now on, so
    nothing may have begun to use CUDA. Raises InputError.
    """
    fields = {name: value for name, value in asked.items() if name != "sampling_device"}
    if asked["ray"] is not None:
        if asked["sampling_device"] is not None or "," in asked["judge"]:
            raise InputError(
                "--ray: the cluster assigns its GPUs; leave out --sampling-device, and name one judge"
            )
        return fields
    device, sampling = asked["device"], asked["sampling_device"]
    judges = (
        [known(name.strip()) for name in asked["judge"].split(",")]
        if asked["judge"].startswith("cuda")
        else []
    )
    if sampling is None and (len(judges) < 2 and (device == "cpu" or judges in ([], [device]))):
        return fields
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise InputError(
            "--sampling-device and several judging GPUs work with one training process only: launch one"
        )
    if judges:
        fields |= {"judge": "cuda:0", "judge_gpus": tuple(map(_named, judges))}
    if sampling is not None:
        if device == "cpu":
            raise InputError(
                f"--sampling-device {sampling} needs the training on a GPU too: give --device cuda:N"
            )
        fields["sampling_gpu"] = _named(sampling)
    if device != "cpu":
        fields["device"] = "cuda:0"
        os.environ[VISIBLE_DEVICES_VARIABLE] = _named(device)
    return fields


def _named(device: str) -> str:
    """`cuda:N` as CUDA_VISIBLE_DEVICES names it."""
    number = int(device.partition(":")[2] or 0)
    shown = [
        name.strip()
        for name in os.environ.get(VISIBLE_DEVICES_VARIABLE, "").split(",")
        if name.strip()
    ]
    return shown[number] if shown else str(number)
