"""Makes a capacity request of the options of a training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelwright.errors import InputError
from kernelwright.rl.training.capacity.layouts import CapacityRequest
from kernelwright.rl.training.capacity.memory import StepShape, TrainedPart
from kernelwright.rl.training.capacity.model_shape import MIN_CHECKPOINTED_PARAMETERS, ModelShape
from kernelwright.rl.training.capacity.timing import GpuRates
from kernelwright.rl.training.online.options import DEFAULT_STEPS, OnlineOptions
from kernelwright.rl.training.options import LogOptions
from kernelwright.rl.training.sft.options import SftOptions
from kernelwright.rl.training.sft.presets import PRESETS

GPU_GIGABYTES: Mapping[str, int] = {
    "A100 SXM4 80GB": 80, "A100 PCIe 80GB": 80, "A100 SXM4 40GB": 40, "A10": 24, "GeForce RTX 3090": 24,
    "L4": 24, "L40S": 48, "GeForce RTX 4090": 24, "H200": 141, "H200 NVL": 141, "H100 SXM5 HBM3": 80,
    "H100 NVL": 94, "H100 PCIe": 80, "B200": 180, "GeForce RTX 5090": 32, "Instinct MI300X": 192,
}  # fmt: skip
"""Memory in GB by the makers' data sheets."""
DEFAULT_GPU = "H100 SXM5 HBM3"
DEFAULT_REPLY_TOKENS = 1536
"""Assumed length of a reply in a plan, in tokens."""
VERDICT_SECONDS_CPU = 1.0
"""Seconds of a verdict under the interpreter on one core."""
VERDICT_SECONDS_GPU = 4.0
"""Seconds of a timed verdict; the timings of a GPU take turns."""


def gpu_rates(name: str | None) -> GpuRates:
    """Returns the GPU of `--gpu-type`, of this machine, or an H100. Raises InputError for a GPU
    without an entry in the table.
    """
    from kernelwright.tools.hardware.gpus import read_driver
    from kernelwright.tools.hardware.peaks import PEAKS, peak_of

    if name is None:
        visible = read_driver().gpus
        name = visible[0].name if visible else DEFAULT_GPU
    # "H100" alone means the board of servers, the first of this name in the table.
    listed = (peak for peak in PEAKS if peak.gpu.upper().startswith(name.upper()))
    peak = next(listed, None) or peak_of(name)
    if peak is None:
        raise InputError(f"--gpu-type {name!r}: choose {', '.join(GPU_GIGABYTES)}")
    return GpuRates(
        name=peak.gpu,
        bytes=GPU_GIGABYTES[peak.gpu] * 10**9,
        bf16_rate=peak.rates["bf16"],
        memory_rate=peak.bytes_per_second,
    )


def request_of(
    options: SftOptions | LogOptions | OnlineOptions,
    shape: ModelShape,
    gpus: int,
    gpu: GpuRates,
    prompt_tokens: int,
    rows: int | None = None,
) -> CapacityRequest:
    """Returns the request of a training's options.

    rows: of the data, if counted; they decide the number of steps of an epoch.
    """
    if isinstance(options, SftOptions):
        return _of_sft(options, gpus, gpu, rows)
    part = TrainedPart(
        lora=options.lora or options.adapter is not None,
        checkpointing=bool(
            options.settings.get(
                "gradient_checkpointing", shape.parameters > MIN_CHECKPOINTED_PARAMETERS
            )
        ),
    )
    if isinstance(options, OnlineOptions):
        return _of_online(options, part, gpus, gpu, prompt_tokens)
    size = int(options.settings.get("per_device_train_batch_size", 4))
    parts = int(options.settings.get("gradient_accumulation_steps", 8))
    rows_a_step = size * parts * gpus
    reply = (options.max_length or prompt_tokens + DEFAULT_REPLY_TOKENS) - prompt_tokens
    step = StepShape(
        rows=rows_a_step, parts=parts, prompt_tokens=prompt_tokens, reply_tokens=max(1, reply)
    )
    steps = options.max_steps or max(1, round(options.epochs * (rows or rows_a_step) / rows_a_step))
    return CapacityRequest(gpus=gpus, gpu=gpu, step=step, part=part, steps=steps)


def _of_online(
    options: OnlineOptions, part: TrainedPart, gpus: int, gpu: GpuRates, prompt_tokens: int
) -> CapacityRequest:
    step = StepShape(
        rows=options.prompts * options.group * options.turns,
        parts=int(options.settings.get("gradient_accumulation_steps", 4)),
        prompt_tokens=prompt_tokens,
        reply_tokens=options.reply_tokens or DEFAULT_REPLY_TOKENS,
    )
    on_gpu = options.judge.startswith("cuda")
    return CapacityRequest(
        gpus=gpus,
        gpu=gpu,
        step=step,
        part=part,
        steps=options.max_steps or DEFAULT_STEPS,
        online=True,
        turns=options.turns,
        lag=options.lag,
        judges_on_gpu=on_gpu,
        verdict_seconds=VERDICT_SECONDS_GPU if on_gpu else VERDICT_SECONDS_CPU,
        judges=1 if on_gpu else options.judges,
    )


def _of_sft(options: SftOptions, gpus: int, gpu: GpuRates, rows: int | None) -> CapacityRequest:
    preset = PRESETS[options.preset]
    settings: dict[str, Any] = {**preset.config, **options.settings}
    parts = int(settings.get("gradient_accumulation_steps", 1))
    rows_a_step = int(settings.get("per_device_train_batch_size", 8)) * parts * gpus
    step = StepShape(
        rows=rows_a_step,
        parts=parts,
        prompt_tokens=0,
        reply_tokens=int(settings["max_length"]),
        masked=False,
    )
    part = TrainedPart(
        lora=preset.lora is not None or options.adapter is not None,
        checkpointing=bool(settings.get("gradient_checkpointing")),
    )
    epochs = float(settings.get("num_train_epochs", 3))
    steps = int(settings.get("max_steps", -1))
    if steps < 1:
        steps = max(1, round(epochs * (rows or rows_a_step) / rows_a_step))
    return CapacityRequest(gpus=gpus, gpu=gpu, step=step, part=part, steps=steps)
