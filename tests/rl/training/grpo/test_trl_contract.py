"""The private names of trl that the trainer stands on.

When this fails, trl has changed: read rl/training/grpo/trainer.py before raising the pin.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import pytest
from transformers import TrainingArguments

trl = pytest.importorskip("trl")

from kernelwright.rl.training.grpo.config import (  # noqa: E402
    CORRECTION_FIELDS,
    LOSS_FIELDS,
    MODEL_FIELDS,
    decided_grpo_fields,
)

OF_TRL = {f.name for f in fields(trl.GRPOConfig)} - {f.name for f in fields(TrainingArguments)}
"""Fields of GRPOConfig that transformers' TrainingArguments has not."""


def source(name: str) -> str:
    return inspect.getsource(getattr(trl.GRPOTrainer, name))


def test_the_names_that_are_overridden_exist_with_the_arguments_they_are_called_with():
    assert list(inspect.signature(trl.GRPOTrainer._prepare_inputs).parameters) == [
        "self",
        "generation_batch",
    ]
    assert list(inspect.signature(trl.GRPOTrainer._compute_loss).parameters) == [
        "self",
        "model",
        "inputs",
    ]
    first = list(inspect.signature(trl.GRPOTrainer._get_per_token_logps_and_entropies).parameters)[
        :5
    ]
    assert first == ["self", "model", "input_ids", "attention_mask", "logits_to_keep"]


@pytest.mark.parametrize(
    "name", ["prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask", "advantages",
    "old_per_token_logps",
             "sampling_per_token_logps", "ref_per_token_logps", "importance_sampling_ratio", "num_items_in_batch"],
)  # fmt: skip
def test_the_loss_reads_the_inputs_under_these_names(name):
    assert f'"{name}"' in source("_compute_loss")


def test_the_loss_falls_back_to_the_moving_policy_only_where_no_log_probs_are_given():
    assert 'old_per_token_logps = inputs.get("old_per_token_logps")' in source("_compute_loss")


def test_an_advantage_a_token_is_still_supported():
    assert "advantages.dim() == 1" in source("_compute_loss")


def test_the_correction_is_applied_where_use_vllm_says_so():
    assert "self.use_vllm and self.vllm_importance_sampling_correction" in source("_compute_loss")


def test_metrics_are_lists_under_the_mode_that_log_averages():
    assert "self._metrics[mode]" in source("log")


def test_token_losses_are_divided_by_the_tokens_of_the_whole_batch():
    text = source("_compute_loss")
    assert "num_items_in_batch" in text
    assert "current_gradient_accumulation_steps / self.args.steps_per_generation" in text


def test_the_version_is_the_one_that_was_read():
    assert trl.__version__.startswith("1.16."), (
        "trl changed: run tests/rl/training/grpo/test_loss.py, read trainer.py, then move the pin"
    )


def test_the_fields_that_set_takes_are_those_that_the_loss_reads():
    attributes = set(re.findall(r"self\.(?:args\.)?(\w+)", source("_compute_loss")))
    # The loss reads epsilon under another name; the other two are set by the batch, and by what is sampled.
    read = OF_TRL & (attributes | {"epsilon"}) - {
        "steps_per_generation",
        "max_completion_length",
        "use_vllm",
    }
    assert read - CORRECTION_FIELDS - MODEL_FIELDS == LOSS_FIELDS


def test_every_other_field_of_trl_is_refused():
    assert OF_TRL - decided_grpo_fields() == LOSS_FIELDS | MODEL_FIELDS | CORRECTION_FIELDS
    for name in MODEL_FIELDS & {
        "router_aux_loss_coef",
        "disable_dropout",
        "cast_lm_head_to_fp32",
        "sync_ref_model",
    }:
        assert f"args.{name}" in source("__init__")
