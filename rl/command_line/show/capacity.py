"""Renders the capacity plan of a training (`--plan`) as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelwright.rl.training.capacity.layouts import CapacityPlan

MINUTE_SECONDS = 60.0


def capacity_view(plan: CapacityPlan) -> str:
    """Returns the lines of a capacity plan."""
    share = plan.trained_parameters / plan.parameters
    lines = [
        f"model     {plan.model}: {plan.parameters / 1e9:.2f} B parameters, {share:.1%} of them trained",
        f"GPUs      {plan.layout.trainers + plan.layout.rollouts + plan.layout.judges} x "
        f"{plan.gpu.name} ({plan.gpu.bytes / 1e9:.0f} GB): {_roles(plan)}",
        f"trainer   {_trainer_line(plan)}",
    ]
    if plan.rollout is not None:
        lines.append(
            f"rollouts  weights {_gigabytes(plan.rollout.weights)}, KV cache "
            f"{_gigabytes(max(0, plan.rollout.kv_cache))} on each GPU: {plan.rollout.rows_at_once:,} "
            "rows of full length at once in an engine"
        )
    lines.append(f"a step    {_seconds_line(plan)}")
    lines.append(
        f"training  {plan.steps:,} steps of {plan.tokens_a_step:,} tokens: "
        f"{plan.steps * plan.tokens_a_step / 1e6:,.0f} M tokens, about {_duration(plan.hours)}"
    )
    return "\n".join(lines)


def refusal(plan: CapacityPlan) -> str:
    """Returns the reason why a training does not fit, and the nearest fitting options."""
    if not plan.proposal:
        return f"{plan.shortage}, and no layout of up to 64 GPUs fits: use a smaller base"
    return f"{plan.shortage}: it fits with {plan.proposal}"


def _roles(plan: CapacityPlan) -> str:
    layout = plan.layout
    roles = [f"{layout.trainers} train"]
    if layout.rollouts:
        engines = layout.rollouts // layout.tensor_parallel
        plural = "engine" if engines == 1 else "engines"
        roles.append(
            f"{layout.rollouts} sample ({engines} {plural} of tensor parallel size {layout.tensor_parallel})"
        )
    if layout.judges:
        roles.append(f"{layout.judges} judge")
    return ", ".join(roles)


def _trainer_line(plan: CapacityPlan) -> str:
    memory = plan.trainer
    parts = (
        ("weights", memory.weights),
        ("gradients", memory.gradients),
        ("optimizer", memory.optimizer),
        ("gathered", memory.gathered),
        ("activations", memory.activations),
        ("logits", memory.logits),
    )
    listed = ", ".join(f"{name} {_gigabytes(size)}" for name, size in parts)
    return f"{_gigabytes(memory.tensors)} on each GPU ({listed}; parts of {plan.part_rows} rows)"


def _seconds_line(plan: CapacityPlan) -> str:
    seconds = plan.seconds
    phases = (
        ("generation", seconds.generation),
        ("judging", seconds.judging),
        ("transfer", seconds.transfer),
        ("training", seconds.training),
    )
    listed = ", ".join(f"{name} {value:.1f}" for name, value in phases if value > 0)
    side = "; rollouts run beside the training" if seconds.lag else ""
    return f"{seconds.step:.1f} s ({listed}{side})"


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def _duration(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{hours * MINUTE_SECONDS:.0f} minutes"
