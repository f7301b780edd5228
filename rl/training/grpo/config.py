"""Builds the GRPOConfig of a training: measured defaults under the user's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.rl.training.processes import sharding_fields
from kernelwright.rl.training.trl_settings import (
    check_settings,
    decided_fields,
    make_config,
    refuse_decided,
    warm_up_steps,
)

if TYPE_CHECKING:
    from trl import GRPOConfig

SMALL_MODEL_PARAMETERS = 200_000_000
"""Largest number of parameters of a small model, which gets a higher learning rate and larger
batches.
"""
LOSSES = ("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "gspo", "sapo", "luspo", "vespo")
"""Losses of trl by their names there, and GSPO."""
LOSS_FIELDS = frozenset(
    {
        *("loss_type", "beta", "epsilon", "epsilon_high", "delta", "importance_sampling_level"),
        *("sapo_temperature_neg", "sapo_temperature_pos"),
        *("vespo_k_pos", "vespo_k_neg", "vespo_lambda_pos", "vespo_lambda_neg"),
        *("top_entropy_quantile", "off_policy_mask_threshold", "use_bias_correction_kl"),
        *(
            "entropy_coef",
            "entropy_coef_min",
            "entropy_coef_max",
            "entropy_coef_delta",
            "entropy_target",
        ),
        "use_adaptive_entropy",
    }
)
"""Fields of GRPOConfig read by trl's loss (tests/rl/training/grpo/test_trl_contract.py compares
with its source).
"""
MODEL_FIELDS = frozenset(
    {
        *("router_aux_loss_coef", "disable_dropout", "cast_lm_head_to_fp32"),
        *("sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps"),
    }
)
"""Fields of GRPOConfig for the set-up of the model and its reference model."""
CORRECTION_FIELDS = frozenset(
    {
        "vllm_importance_sampling_correction",
        "vllm_importance_sampling_mode",
        "vllm_importance_sampling_clip_max",
        "vllm_importance_sampling_clip_min",
    }
)
"""Fields of GRPOConfig for the importance-sampling correction of `--decoupled`."""

DEFAULT_FIELDS: dict[str, Any] = {
    "loss_type": "dapo", "beta": 0.0, "epsilon": 0.2, "epsilon_high": 0.28, "scale_rewards": "none",
    "max_grad_norm": 0.5,
    "adam_beta1": 0.9, "adam_beta2": 0.95, "weight_decay": 0.0, "lr_scheduler_type": "constant_with_warmup",
    "logging_steps": 1, "report_to": "none", "disable_tqdm": True, "logging_nan_inf_filter": False,
    "save_total_limit": 2,
    "remove_unused_columns": False, "dataloader_num_workers": 0, "ddp_find_unused_parameters": False,
    "include_num_input_tokens_seen": "no",
}  # fmt: skip
"""Fields of trl's GRPOConfig with the values that trained well."""


class RateSettings(Value):
    """Learning rate and gradient checkpointing by the number of parameters."""

    learning_rate: float
    gradient_checkpointing: bool


def rate_settings(parameters: int, lora: bool) -> RateSettings:
    """Chooses learning rate and gradient checkpointing by the number of parameters."""
    if parameters <= SMALL_MODEL_PARAMETERS:
        return RateSettings(learning_rate=1e-4, gradient_checkpointing=False)
    return RateSettings(learning_rate=1e-5 if lora else 1e-6, gradient_checkpointing=True)


def checked_settings(user_settings: Mapping[str, Any], decoupled: bool = False) -> dict[str, Any]:
    """Returns the user's fields of GRPOConfig, with `gspo` in trl's terms.

    Raises InputError for a field without effect: trl's own sampling, rewards and logging of
    completions are not used.
    """
    from trl import GRPOConfig

    settings = _aliased(user_settings)
    check_settings(GRPOConfig, settings)
    for name in settings:
        if name in CORRECTION_FIELDS and not decoupled:
            raise InputError(
                f"--set {name}={settings[name]}: add --decoupled, without which nothing is corrected"
            )
    refuse_decided(settings, decided_grpo_fields())
    return settings


def decided_grpo_fields() -> frozenset[str]:
    """Returns the fields of GRPOConfig decided by `rl train`, or without effect on rows sampled
    by the agent.
    """
    from transformers import TrainingArguments
    from trl import GRPOConfig

    shared = {field.name for field in fields(TrainingArguments)}
    of_trl = {field.name for field in fields(GRPOConfig)} - shared
    return decided_fields(GRPOConfig) | of_trl - LOSS_FIELDS - MODEL_FIELDS - CORRECTION_FIELDS


class GRPOFacts(NamedTuple):
    """Facts of a training that decide fields of its GRPOConfig."""

    output_dir: str
    max_steps: int
    seed: int
    device: str
    parameters: int
    """Number of parameters of the model."""
    lora: bool
    temperature: float
    longest_completion: int
    """Largest number of tokens of a completion."""


def grpo_config(user_settings: Mapping[str, Any], facts: GRPOFacts) -> GRPOConfig:
    """Returns trl's GRPOConfig. `user_settings`: checked by `checked_settings`. Raises
    InputError.
    """
    from trl import GRPOConfig

    user_settings = _aliased(user_settings)
    on_gpu = facts.device.startswith("cuda")
    is_small = facts.parameters <= SMALL_MODEL_PARAMETERS
    rates = rate_settings(facts.parameters, facts.lora).model_dump()
    defaults: dict[str, Any] = {
        **DEFAULT_FIELDS,
        **sharding_fields(),
        **rates,
        "per_device_train_batch_size": 64 if is_small else 4,
        "gradient_accumulation_steps": 1 if is_small else 8,
        "bf16": on_gpu,
        "save_steps": 20,
        **warm_up_steps(facts.max_steps, user_settings),
    }
    if user_settings.get("loss_type") == "cispo":
        # CISPO caps the ratio itself; this is its paper's scale (MiniMax-M1).
        defaults["epsilon_high"] = 5.0
    decided = {
        "output_dir": facts.output_dir,
        "max_steps": facts.max_steps,
        "seed": facts.seed,
        "use_cpu": not on_gpu,
        "temperature": facts.temperature,
        "max_completion_length": facts.longest_completion,
    }
    decided |= _batch_fields({**defaults, **user_settings}, on_gpu)
    config: GRPOConfig = make_config(
        GRPOConfig, defaults=defaults, user_settings=user_settings, decided=decided
    )
    return config


def _batch_fields(settings: Mapping[str, Any], on_gpu: bool) -> dict[str, Any]:
    """Returns the fields that make a group as large as the batch.

    trl requires whole groups in a batch; here the advantages already account for groups. Raises
    InputError for a batch of one row.
    """
    from accelerate import PartialState

    parts = int(settings["gradient_accumulation_steps"])
    processes = PartialState(cpu=not on_gpu).num_processes
    rows = int(settings["per_device_train_batch_size"]) * parts * processes
    if rows < 2:
        raise InputError("a step needs two rows at least: --set per_device_train_batch_size=2")
    return {"steps_per_generation": parts, "num_generations": rows}


def _aliased(user_settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings with `gspo` replaced by trl's fields. Raises InputError for an
    unknown loss.
    """
    settings = dict(user_settings)
    if settings.get("loss_type", LOSSES[0]) not in LOSSES:
        raise InputError(
            f"loss_type={settings['loss_type']}: choose {', '.join(LOSSES[:-1])} or {LOSSES[-1]}"
        )
    if settings.get("loss_type") == "gspo":
        settings |= {"loss_type": "grpo", "importance_sampling_level": "sequence"}
        # GSPO's ratio is a mean over the sequence, so its clip range is narrow
        # (arXiv:2507.18071).
        settings.setdefault("epsilon", 3e-4)
        settings.setdefault("epsilon_high", 4e-4)
    return settings
