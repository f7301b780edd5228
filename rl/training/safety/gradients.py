"""A gradient that is not finite never reaches the weights, whatever the method."""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback

from kernelwright.rl.training.safety.alarms import Alarm, TrainingAlarm


class FiniteGradients(TrainerCallback):
    """Raises TrainingAlarm before the optimizer's step.

    A trainer alone would say so one step later, when every weight is NaN.
    """

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        """Raises TrainingAlarm before weights are moved by a gradient that holds an infinity or no number."""
        gradients = (
            [] if model is None else [p.grad for p in model.parameters() if p.grad is not None]
        )
        if gradients and not bool(torch.isfinite(torch.nn.utils.get_total_norm(gradients))):
            raise TrainingAlarm(
                Alarm.NOT_FINITE,
                f"the gradient is not finite at step {state.global_step}: lower --set learning_rate=...; "
                "checkpoints so far are "
                "whole",
            )
