"""Gives the GPUs of a training their roles, and says whether the training fits them."""

from __future__ import annotations

from collections.abc import Iterator

from kernelwright.policies.base import Value
from kernelwright.rl.training.capacity.memory import (
    RolloutMemory,
    StepShape,
    TrainedPart,
    TrainerMemory,
    fits,
    rollout_memory,
    trainer_memory,
)
from kernelwright.rl.training.capacity.model_shape import ModelShape
from kernelwright.rl.training.capacity.timing import (
    FOLDER_RATE,
    GpuRates,
    StepSeconds,
    generation_seconds,
    training_seconds,
)

MAX_GPUS = 64
"""Largest number of GPUs in a proposal."""
MAX_STEP_PARTS = 256
"""Largest number of parts of a step in a proposal."""
TENSOR_PARALLEL_SIZES = (1, 2, 4, 8)


class CapacityRequest(Value):
    """A training whose capacity is planned."""

    gpus: int
    gpu: GpuRates
    step: StepShape
    part: TrainedPart
    steps: int
    online: bool = False
    turns: int = 1
    """Turns of a trajectory; the rows of a step are those of all turns."""
    lag: int = 0
    judges_on_gpu: bool = False
    verdict_seconds: float = 1.0
    judges: int = 1
    """Verdicts at once on the CPU, or on each judging GPU."""


class Layout(Value):
    """Number of GPUs by role."""

    trainers: int
    rollouts: int = 0
    tensor_parallel: int = 1
    """GPUs of each sampling engine."""
    judges: int = 0


class CapacityPlan(Value):
    """The capacity of a training in a layout."""

    model: str
    parameters: int
    trained_parameters: int
    gpu: GpuRates
    layout: Layout
    trainer: TrainerMemory
    part_rows: int
    """Rows of a part of a step on each trainer."""
    rollout: RolloutMemory | None
    seconds: StepSeconds
    tokens_a_step: int
    steps: int
    hours: float
    fits: bool
    shortage: str = ""
    """The shortage of memory or GPUs, in a sentence; empty if the training fits."""
    proposal: str = ""
    """Options of the nearest fitting training."""


def plan_capacity(shape: ModelShape, request: CapacityRequest) -> CapacityPlan:
    """Returns the plan of the fastest layout among the fitting ones; without a fitting layout, the
    plan with the least memory and a proposal of the nearest options.
    """
    plans = [_plan(shape, request, layout) for layout in _layouts(request)]
    fitting = [plan for plan in plans if plan.fits]
    if fitting:
        return min(fitting, key=lambda plan: plan.seconds.step)
    least = min(plans, key=lambda plan: plan.trainer.tensors)
    return least.with_(proposal=_proposal(shape, request))


def _layouts(request: CapacityRequest) -> Iterator[Layout]:
    """Yields the layouts of all GPUs. Training from rows has trainers alone."""
    if not request.online:
        yield Layout(trainers=request.gpus)
        return
    for judges in range(1, request.gpus - 1) if request.judges_on_gpu else (0,):
        # Every split of the remaining GPUs between sampling and training.
        shared = request.gpus - judges
        for rollouts in range(1, shared):
            for width in TENSOR_PARALLEL_SIZES:
                if rollouts % width == 0:
                    yield Layout(
                        trainers=shared - rollouts,
                        rollouts=rollouts,
                        tensor_parallel=width,
                        judges=judges,
                    )
    if request.gpus < (3 if request.judges_on_gpu else 2):
        # Too few GPUs for the three roles: `_shortage` says so.
        yield Layout(trainers=request.gpus)


def _plan(shape: ModelShape, request: CapacityRequest, layout: Layout) -> CapacityPlan:
    trainer = trainer_memory(shape, request.step, request.part, layout.trainers)
    rollout = None
    if layout.rollouts:
        rollout = rollout_memory(shape, request.step, request.gpu.bytes, layout.tensor_parallel)
    seconds = _seconds(shape, request, layout, rollout)
    shortage = _shortage(request, layout, trainer, rollout)
    return CapacityPlan(
        model=shape.name,
        parameters=shape.parameters,
        trained_parameters=shape.lora_parameters if request.part.lora else shape.parameters,
        gpu=request.gpu,
        layout=layout,
        trainer=trainer,
        part_rows=request.step.part_rows(layout.trainers),
        rollout=rollout,
        seconds=seconds,
        tokens_a_step=request.step.tokens,
        steps=request.steps,
        hours=request.steps * seconds.step / 3600,
        fits=not shortage,
        shortage=shortage,
    )


def _shortage(
    request: CapacityRequest, layout: Layout, trainer: TrainerMemory, rollout: RolloutMemory | None
) -> str:
    """Returns the shortage of a layout in a sentence; empty if everything fits."""
    gigabytes = request.gpu.bytes / 1e9
    if request.online and layout.rollouts == 0:
        return f"{request.gpus} GPUs are too few for trainer, engine and judge: each has its own"
    if not fits(trainer, request.gpu.bytes):
        return (
            f"each trainer needs {trainer.tensors / 1e9:.0f} GB beside CUDA's own memory, and a "
            f"{request.gpu.name} has {gigabytes:.0f} GB"
        )
    if rollout is not None and rollout.rows_at_once == 0:
        return (
            f"the engine's weights take {rollout.weights / 1e9:.0f} GB of {gigabytes:.0f} GB: no row "
            "is left room for"
        )
    return ""


def _seconds(
    shape: ModelShape, request: CapacityRequest, layout: Layout, rollout: RolloutMemory | None
) -> StepSeconds:
    step, gpu = request.step, request.gpu
    training = training_seconds(shape, step, request.part, layout.trainers, gpu)
    if rollout is None:
        return StepSeconds(training=training)
    # A turn begins when those before it are judged.
    turn = step.with_(rows=max(1, step.rows // request.turns))
    generation = generation_seconds(
        shape,
        turn,
        layout.rollouts // layout.tensor_parallel,
        layout.tensor_parallel,
        rollout.rows_at_once,
        gpu,
    )
    lanes = request.judges * max(1, layout.judges)
    sent = shape.lora_parameters if request.part.lora else shape.parameters
    return StepSeconds(
        generation=request.turns * generation,
        judging=step.rows * request.verdict_seconds / lanes,
        transfer=4 * sent / FOLDER_RATE,
        training=training,
        lag=request.lag,
    )


def _proposal(shape: ModelShape, request: CapacityRequest) -> str:
    """Returns the options of the nearest fitting training: more parts of a step, then
    activations computed again, then an adapter, then more GPUs. Empty if none fits.
    """
    for gpus in _more_gpus(request.gpus):
        for part, words in _parts_trained(request.part):
            for parts in _more_parts(request.step.parts):
                changed = request.with_(gpus=gpus, part=part, step=request.step.with_(parts=parts))
                if any(_plan(shape, changed, layout).fits for layout in _layouts(changed)):
                    gpu_options = [f"--gpus {gpus}"] if gpus != request.gpus else []
                    if parts != request.step.parts:
                        gpu_options.append(f"--set gradient_accumulation_steps={parts}")
                    return " ".join([*gpu_options, *words])
    return ""


def _more_gpus(gpus: int) -> list[int]:
    sizes = [2**power for power in range(MAX_GPUS.bit_length())]
    return [gpus, *[size for size in sizes if size > gpus]]


def _parts_trained(part: TrainedPart) -> list[tuple[TrainedPart, list[str]]]:
    """Returns the requested part, and smaller ones with their options."""
    choices: list[tuple[TrainedPart, list[str]]] = [(part, [])]
    again = ["--set", "gradient_checkpointing=true"]
    if not part.checkpointing:
        part = part.with_(checkpointing=True)
        choices.append((part, again))
    if not part.lora:
        words = choices[-1][1]
        choices.append((part.with_(lora=True), [*words, "--lora"]))
    return choices


def _more_parts(parts: int) -> list[int]:
    sizes = [parts]
    while sizes[-1] * 2 <= MAX_STEP_PARTS:
        sizes.append(sizes[-1] * 2)
    return sizes
