"""Keeps gradients that are not finite from the weights, for every method."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from transformers import TrainerCallback

from kernelwright.rl.training.safety.alarms import Alarm, TrainingAlarm
from kernelwright.rl.training.sharding.gathering import whole_tensor

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments


class FiniteGradients(TrainerCallback):
    """Raises TrainingAlarm before the optimizer's step. A trainer alone would notice a step
    later, when every weight is NaN.
    """

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: torch.nn.Module | None = None,
        **_: object,
    ) -> None:
        """Raises TrainingAlarm if a gradient holds an infinity or a NaN."""
        if model is None:
            return
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        if not gradients:
            return
        norm = torch.nn.utils.get_total_norm(gradients)
        # Of sharded gradients each process has the norm of its own part until they are summed.
        if not bool(torch.isfinite(whole_tensor(norm))):
            raise TrainingAlarm(
                Alarm.NOT_FINITE,
                f"the gradient is not finite at step {state.global_step}: lower --set learning_rate=...; "
                "checkpoints so far are whole",
            )
