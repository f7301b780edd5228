"""Chooses this machine's GPUs of an online training: for training, for sampling, for judging.

transformers copies the model onto every GPU visible to a process. Therefore this process sees
only the trainer's GPU, and each process started for sampling or judging sees its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from kernelwright.agent.runtime.arguments import choose_device
from kernelwright.errors import InputError

VISIBLE_DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"


def spread(
    values: dict[str, Any],
    check_device: Callable[[str], str] = choose_device,
    processes: int = 1,
) -> dict[str, Any]:
    """Returns fields of OnlineOptions, with the GPUs as seen by their processes.

    values: the same fields, `sampling_device`, and a `judge` with possibly several GPUs.
    check_device: returns a device's full name; raises InputError for an absent device. processes:
    number of training processes. A single process sees one of several GPUs from now on, so CUDA
    must not be initialized before; of several processes each has its own. Raises InputError.
    """
    fields = {name: value for name, value in values.items() if name != "sampling_device"}
    if values["ray"] is not None:
        if values["sampling_device"] is not None or "," in values["judge"]:
            raise InputError(
                "--ray: the cluster assigns its GPUs; leave out --sampling-device, and name one judge"
            )
        return fields
    device, sampling = values["device"], values["sampling_device"]
    judges = (
        [check_device(name.strip()) for name in values["judge"].split(",")]
        if values["judge"].startswith("cuda")
        else []
    )
    # Nothing to distribute: training, sampling and judging share the device.
    if sampling is None and (len(judges) < 2 and (device == "cpu" or judges in ([], [device]))):
        return fields
    if judges:
        fields |= {"judge": "cuda:0", "judge_gpus": tuple(map(_named, judges))}
    if processes > 1:
        if sampling is not None:
            raise InputError(
                "--sampling-device goes with one training process: start a vLLM server on that GPU and name it "
                "(--engine openai:MODEL@URL)"
            )
        return fields
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
    """Returns `cuda:N` as named by CUDA_VISIBLE_DEVICES."""
    number = int(device.partition(":")[2] or 0)
    shown = [
        name.strip()
        for name in os.environ.get(VISIBLE_DEVICES_VARIABLE, "").split(",")
        if name.strip()
    ]
    return shown[number] if shown else str(number)
