"""The GRPOConfig of a training: defaults that were measured to work here, with the user's settings over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.rl.training.trl_settings import check_settings, make_config, warm_up_steps

SMALL_MODEL_PARAMETERS = 200_000_000
"""Parameters up to which a model is trained as the small policies here are."""
LOSSES = ("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "gspo", "sapo", "luspo", "vespo")
"""trl's, by its own names, and GSPO."""
DECIDED_FIELDS = frozenset(
    {
        "output_dir",
        "max_steps",
        "seed",
        "use_vllm",
        "rollout_func",
        "num_generations",
        "generation_batch_size",
        "steps_per_generation",
    }
)
"""Fields that this command decides."""

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
    """Chooses the learning rate by the number of parameters."""
    if parameters <= SMALL_MODEL_PARAMETERS:
        return RateSettings(learning_rate=1e-4, gradient_checkpointing=False)
    return RateSettings(learning_rate=1e-5 if lora else 1e-6, gradient_checkpointing=True)


def checked_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the user's fields of GRPOConfig, with `gspo` in trl's words. Raises InputError."""
    from trl import GRPOConfig

    settings = _aliased(given)
    for name in settings:
        if name in DECIDED_FIELDS:
            raise InputError(f"{name} cannot be given with --set: rl train has an option for it, or sets it itself")
    check_settings(GRPOConfig, settings)
    return settings


def grpo_config(
    given: Mapping[str, Any], *, output_dir: str, max_steps: int, seed: int, device: str, parameters: int, lora: bool,
    temperature: float, longest_completion: int,
) -> Any:  # fmt: skip
    """Returns trl's GRPOConfig. `loss_type=gspo` is trl's `grpo` with `importance_sampling_level=sequence`. Raises
    InputError.
    """
    from trl import GRPOConfig

    given = checked_settings(given)
    on_gpu = device.startswith("cuda")
    own: dict[str, Any] = {**DEFAULT_FIELDS, **rate_settings(parameters, lora).model_dump()}
    own |= {
        "per_device_train_batch_size": 64 if parameters <= SMALL_MODEL_PARAMETERS else 4,
        "gradient_accumulation_steps": 1 if parameters <= SMALL_MODEL_PARAMETERS else 8,
        "use_cpu": not on_gpu, "bf16": on_gpu, "temperature": temperature, "max_completion_length": longest_completion,
        "save_steps": 20,
    }  # fmt: skip
    if given.get("loss_type") == "cispo":
        own["epsilon_high"] = 5.0  # its own paper's scale: the ratio itself is capped (MiniMax-M1)
    own |= {**warm_up_steps(max_steps, given), **given, "output_dir": output_dir, "max_steps": max_steps, "seed": seed}
    own["steps_per_generation"] = own["gradient_accumulation_steps"]
    return _made(GRPOConfig, own)


def _processes(own: Mapping[str, Any]) -> int:
    from accelerate import PartialState

    return PartialState(cpu=bool(own["use_cpu"])).num_processes


def _made(kind: Any, own: dict[str, Any]) -> Any:
    """trl wants whole groups in a batch; ours are in the advantages already, so one group is as large as the batch."""
    batch = int(own["per_device_train_batch_size"]) * int(own["gradient_accumulation_steps"]) * _processes(own)
    if batch < 2:
        raise InputError("a step needs two rows at least: --set per_device_train_batch_size=2")
    return make_config(kind, {**own, "num_generations": batch})


def _aliased(given: Mapping[str, Any]) -> dict[str, Any]:
    settings = dict(given)
    if settings.get("loss_type", LOSSES[0]) not in LOSSES:
        raise InputError(f"loss_type={settings['loss_type']}: choose {', '.join(LOSSES[:-1])} or {LOSSES[-1]}")
    if settings.get("loss_type") == "gspo":
        settings |= {"loss_type": "grpo", "importance_sampling_level": "sequence"}
        settings.setdefault(
            "epsilon", 3e-4
        )  # GSPO's own clip range (arXiv:2507.18071): its ratio is a mean over the sequence
        settings.setdefault("epsilon_high", 4e-4)
    return settings
