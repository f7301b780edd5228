"""trl's GRPOTrainer on rows that were sampled before: the thinnest subclass that lets the stored log-probs be the old
policy.

Public: `get_train_dataloader`. Private names of trl 1.16 that are used, held by
tests/rl/training/grpo/test_trl_contract.py: `_prepare_inputs` (gives one part of a batch), `_compute_loss`,
`_get_per_token_logps_and_entropies`, `_metrics`, `_tokenizer`. All losses, the KL term, the entropy bonus, the masks,
LoRA, accelerate and logging are trl's own.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from trl import GRPOTrainer

from kernelwright.rl.training.grpo.drift import DriftSum
from kernelwright.rl.training.grpo.padding import unmask_padding
from kernelwright.rl.training.grpo.rows import (
    MicroBatch,
    ScoredCompletion,
    split_into_micro_batches,
    tensors,
)
from kernelwright.rl.training.safety.alarms import Alarm, TrainingAlarm
from kernelwright.rl.training.safety.gradients import FiniteGradients

Batches = Callable[[int], Sequence[ScoredCompletion]]
"""The rows of one optimizer step, by its number from 0. The same number gives the same rows to every process."""


def _no_reward(**_: Any) -> list[float | None]:
    """trl wants a reward function; rows bring their advantage with them, so it is never asked."""
    return []


class TrajectoryGRPOTrainer(GRPOTrainer):
    """`batches(number)` gives the rows of an optimizer step.

    Raises TrainingAlarm before a step whose loss or gradient is not finite.
    """

    def __init__(
        self, model: Any, args: Any, batches: Batches, *, decoupled: bool = False, **options: Any
    ) -> None:
        """`decoupled`: the trust region is round the policy as it is at the step, and trl's importance-sampling
        correction (`vllm_importance_sampling_mode`, `_clip_max` ...) weighs tokens by that policy over the one that
        sampled them. Otherwise the region is round the policy that sampled them, which is the exact clipped objective.
        """
        one = Dataset.from_dict({"prompt": ["-"] * max(2, args.generation_batch_size)})
        super().__init__(
            model=model, args=args, train_dataset=one, reward_funcs=_no_reward, **options
        )
        unmask_padding(self.accelerator.unwrap_model(self.model))
        self.add_callback(FiniteGradients())
        self._batches, self._decoupled = batches, decoupled
        if decoupled:
            # What `_compute_loss` asks before it applies the correction; nothing is generated here.
            self.use_vllm = True
        self._number = -1
        self._parts: list[dict[str, Any]] = []
        self._now: torch.Tensor | None = None
        self._drift = DriftSum()
        self.step_figures: Callable[[], dict[str, float]] = dict
        """Figures that are logged beside the loss of a step and are no mean over its rows."""

    # -------------------------------------------------------------- rows in
    def get_train_dataloader(self) -> DataLoader:
        """Counts forward passes; every process counts for itself and takes its own share of the rows."""
        count = max(1, self.args.max_steps) * self.args.gradient_accumulation_steps
        ticks: Any = range(count)
        return DataLoader(ticks, batch_size=1, collate_fn=list)

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        number, place = divmod(generation_batch[0], self.args.gradient_accumulation_steps)
        if number != self._number:
            self._parts, self._number = self._made(list(self._batches(number))), number
        return self._parts[place]

    def _made(self, rows: list[ScoredCompletion]) -> list[dict[str, Any]]:
        accelerator, count = self.accelerator, self.args.gradient_accumulation_steps
        parts = split_into_micro_batches(
            rows, count, self.loss_type, accelerator.process_index, accelerator.num_processes
        )
        tokens = torch.tensor(sum(row.trained_tokens for row in rows), device=accelerator.device)
        self._log_figures(rows)
        return [self._inputs(part, tokens) for part in parts]

    def _inputs(self, part: MicroBatch, tokens: torch.Tensor) -> dict[str, Any]:
        inputs: dict[str, Any] = tensors(
            part.rows, self._tokenizer.pad_token_id, self.accelerator.device
        )
        inputs |= {"num_items_in_batch": tokens, "weight": part.weight}
        if self._decoupled:
            inputs["old_per_token_logps"] = self._logps(self.model, inputs)
            inputs["importance_sampling_ratio"] = self._correction(inputs)
        if self.beta != 0.0:
            inputs["ref_per_token_logps"] = self._reference(inputs)
        return inputs

    @torch.no_grad()
    def _logps(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        return super()._get_per_token_logps_and_entropies(
            model, ids, mask, inputs["completion_ids"].size(1)
        )[0]

    def _reference(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Returns the log-probs under the reference model; with LoRA, under the model without its adapter."""
        if self.ref_model is not None:
            return self._logps(self.ref_model, inputs)
        with self.accelerator.unwrap_model(self.model).disable_adapter():
            return self._logps(self.model, inputs)

    def _correction(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Corrects as trl does for a sampler of its own (`GRPOTrainer._generate_and_score_completions`), by its own
        settings.
        """
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        distance = (inputs["old_per_token_logps"] - inputs["sampling_per_token_logps"]) * mask
        if self.vllm_importance_sampling_mode.startswith("sequence"):
            distance = distance.sum(dim=-1, keepdim=True)
        ratio, low, high = (
            distance.exp(),
            self.vllm_importance_sampling_clip_min,
            self.vllm_importance_sampling_clip_max,
        )
        if self.vllm_importance_sampling_mode.endswith("truncate"):
            return ratio.clamp(min=low, max=high)
        outside = (ratio < (-math.inf if low is None else low)) | (
            ratio > (math.inf if high is None else high)
        )
        return ratio.masked_fill(outside, 0.0)

    # -------------------------------------------------------------- loss out
    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs) * inputs["weight"]
        if not bool(torch.isfinite(loss)):
            raise TrainingAlarm(
                Alarm.NOT_FINITE,
                f"the loss is {loss.item()} at step {self.state.global_step}: lower --set "
                "learning_rate=...; checkpoints so far are "
                "whole",
            )
        self._measure(inputs)
        return loss

    def _get_per_token_logps_and_entropies(self, *args: Any, **options: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **options)
        self._now = found[0].detach()
        return found

    def _measure(self, inputs: dict[str, Any]) -> None:
        """Measures how far the policy has moved from the one that sampled, from log-probs that are computed anyway."""
        assert self._now is not None
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        self._drift.add(self._now, inputs["sampling_per_token_logps"], mask)
        if inputs is self._parts[-1]:
            for name, value in self._drift.drift().figures().items():
                self._metrics["train"][name].append(value)
            self._drift = DriftSum()

    def _log_figures(self, rows: Sequence[ScoredCompletion]) -> None:
        sums: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            for name, value in (row.figures or {}).items():
                sums[name].append(value)
        figures = {name: sum(values) / len(values) for name, values in sums.items()}
        figures |= self.step_figures() | {
            "rows": float(len(rows)),
            "tokens": float(sum(row.trained_tokens for row in rows)),
        }
        for name, value in figures.items():
            self._metrics["train"][name].append(value)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Ours is written beside the weights; trl's would fetch a template of its own."""
