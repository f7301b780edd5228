"""trl's GRPOTrainer on rows sampled earlier: the thinnest subclass with the stored log-probs as the
old policy.

The loss of a token under the default settings (`dapo`: epsilon 0.2, epsilon_high 0.28), summed over
the batch and divided by its number of trained tokens:

    r    = exp(log-prob now - stored log-prob)       stored -0.7, now -0.5: r = 1.22
    loss = -min(r * A, clip(r, 0.8, 1.28) * A)       advantage A = 1.0: loss = -1.22

Public names used: `get_train_dataloader`. Private names of trl 1.16 used, checked by
tests/rl/training/grpo/test_trl_contract.py: `_prepare_inputs` (returns one part of a batch),
`_compute_loss`, `_get_per_token_logps_and_entropies`, `_metrics`, `_tokenizer`. All losses, the KL
term, the entropy bonus, the masks, LoRA, accelerate and logging are trl's own.
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
"""Returns the rows of an optimizer step by its number from 0. Every process gets the same rows
for the same number.
"""


def _no_reward(**_: object) -> list[float | None]:
    """Satisfies trl's need for a reward function; rows carry their advantage, so trl never calls
    this function.
    """
    return []


class TrajectoryGRPOTrainer(GRPOTrainer):
    """GRPO trainer whose rows for each optimizer step come from `batches(number)`.

    Raises TrainingAlarm before a step with a loss or gradient that is not finite.
    """

    def __init__(
        self,
        model: Any,
        args: Any,
        batches: Batches,
        *,
        decoupled: bool = False,
        **options: Any,
    ) -> None:
        """Takes trl's arguments, and `batches` for the rows.

        `decoupled`: the trust region surrounds the policy at the step, and trl's
        importance-sampling correction (`vllm_importance_sampling_mode`, `_clip_max` ...) weighs
        tokens by the ratio of this policy to the sampling policy. Otherwise the region surrounds
        the sampling policy, which is the exact clipped objective.
        """
        # trl wants a dataset; its rows are never read.
        placeholder = Dataset.from_dict({"prompt": ["-"] * max(2, args.generation_batch_size)})
        fields: dict[str, Any] = {"reward_funcs": _no_reward, **options}
        super().__init__(model=model, args=args, train_dataset=placeholder, **fields)
        unmask_padding(self.accelerator.unwrap_model(self.model))
        self.add_callback(FiniteGradients())
        self._batches, self._decoupled = batches, decoupled
        if decoupled:
            # `_compute_loss` reads this flag before it applies the correction; nothing is
            # generated here.
            self.use_vllm = True
        self._number = -1
        self._parts: list[dict[str, Any]] = []
        self._now: torch.Tensor | None = None
        self._drift = DriftSum()
        self.step_figures: Callable[[], dict[str, float]] = dict
        """Returns figures logged beside the loss of a step without averaging over its rows."""

    # -------------------------------------------------------------- rows in
    def get_train_dataloader(self) -> DataLoader:
        """Counts forward passes; every process counts for itself and takes its own share of the
        rows.
        """
        # One number for each forward pass; `_prepare_inputs` maps it to a step and a part.
        count = max(1, self.args.max_steps) * self.args.gradient_accumulation_steps
        ticks: Any = range(count)
        return DataLoader(ticks, batch_size=1, collate_fn=list)

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        # The data loader yields the number of the forward pass, not rows.
        number, part = divmod(generation_batch[0], self.args.gradient_accumulation_steps)
        if number != self._number:
            self._parts = self._micro_batch_inputs(list(self._batches(number)))
            self._number = number
        return self._parts[part]

    def _micro_batch_inputs(self, rows: list[ScoredCompletion]) -> list[dict[str, Any]]:
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
            # Decoupled: the old policy is the current one; the correction accounts for the
            # sampler.
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
        """Returns the log-probs under the reference model; with LoRA, under the model without its
        adapter.
        """
        if self.ref_model is not None:
            return self._logps(self.ref_model, inputs)
        with self.accelerator.unwrap_model(self.model).disable_adapter():
            return self._logps(self.model, inputs)

    def _correction(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Returns the importance weights that trl computes for its own sampler
        (`GRPOTrainer._generate_and_score_completions`), by its settings.
        """
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        log_ratio = (inputs["old_per_token_logps"] - inputs["sampling_per_token_logps"]) * mask
        mode = self.vllm_importance_sampling_mode
        if mode.startswith("sequence"):
            log_ratio = log_ratio.sum(dim=-1, keepdim=True)
        ratio = log_ratio.exp()
        low, high = self.vllm_importance_sampling_clip_min, self.vllm_importance_sampling_clip_max
        if mode.endswith("truncate"):
            return ratio.clamp(min=low, max=high)
        is_below = ratio < (-math.inf if low is None else low)
        is_above = ratio > (math.inf if high is None else high)
        return ratio.masked_fill(is_below | is_above, 0.0)

    # -------------------------------------------------------------- loss out
    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs) * inputs["weight"]
        if not bool(torch.isfinite(loss)):
            raise TrainingAlarm(
                Alarm.NOT_FINITE,
                f"the loss is {loss.item()} at step {self.state.global_step}: lower --set "
                "learning_rate=...; checkpoints so far are whole",
            )
        self._measure(inputs)
        return loss

    def _get_per_token_logps_and_entropies(self, *args: Any, **options: Any) -> Any:
        # trl computes the log-probs for its loss; they are kept for the drift.
        logps_and_entropies = super()._get_per_token_logps_and_entropies(*args, **options)
        self._now = logps_and_entropies[0].detach()
        return logps_and_entropies

    def _measure(self, inputs: dict[str, Any]) -> None:
        """Measures the distance from the sampling policy with log-probs already computed for the
        loss.
        """
        assert self._now is not None
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        self._drift.add(self._now, inputs["sampling_per_token_logps"], mask)
        # The last part of a step: log the drift of all its rows.
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

    def create_model_card(self, *_: object, **__: object) -> None:
        """Does nothing: the project writes its own card, and trl's would download a template."""
