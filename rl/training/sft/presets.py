"""The presets of `rl sft`: fields of trl's SFTConfig, with adapter and precision. Every field can
be overridden.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.rl.training.trl_settings import check_settings, make_config

LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class PresetName(StrEnum):
    """The named recipes of fine-tuning."""

    QLORA_3090 = "qlora-3090"
    """An 8 B model on a single 24 GB card, as published."""
    LORA = "lora"
    FULL = "full"
    """Every weight of an existing model."""
    SCRATCH = "scratch"
    """A small model from random weights, at the hardware's full speed."""


class Lora(Value):
    """The settings of a LoRA adapter."""

    rank: int = 32
    alpha: int = 32
    dropout: float = 0.05
    targets: tuple[str, ...] = LORA_TARGETS


class Preset(Value):
    """A recipe of fine-tuning."""

    config: dict[str, Any]
    """Fields of trl's SFTConfig, by name."""
    lora: Lora | None = None
    four_bit: bool = False
    """Whether weights are NF4, quantized by bitsandbytes."""
    bucketed: bool = False
    """Whether to use batches of few shapes and a compiled step, instead of trl's own."""


_COSINE = {
    "lr_scheduler_type": "cosine",
    "warmup_steps": 0.02,
    "logging_steps": 5,
    "save_steps": 200,
}
_ONE_BY_SIXTEEN = {
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 16,
    "gradient_checkpointing": True,
}

PRESETS: Mapping[PresetName, Preset] = {
    PresetName.QLORA_3090: Preset(
        config={
            **_COSINE, **_ONE_BY_SIXTEEN,
            "learning_rate": 1e-4, "num_train_epochs": 1, "packing": True, "max_length": 1024, "bf16": True,
        },
        lora=Lora(),
        four_bit=True,
    ),
    PresetName.LORA: Preset(
        config={**_COSINE, **_ONE_BY_SIXTEEN, "learning_rate": 1e-4, "num_train_epochs": 1, "max_length": 2048},
        # Each process would draw its own dropout masks, and more GPUs would give other losses.
        lora=Lora(dropout=0.0),
    ),
    # AutoTriton's (arXiv:2507.05687): three epochs at 1e-5.
    PresetName.FULL: Preset(
        config={**_COSINE, **_ONE_BY_SIXTEEN, "learning_rate": 1e-5, "num_train_epochs": 3, "max_length": 2048},
    ),
    PresetName.SCRATCH: Preset(
        config={
            **_COSINE,
            "learning_rate": 2e-3, "num_train_epochs": 4, "max_length": 1536, "adam_beta2": 0.95, "weight_decay": 0.1,
            "max_grad_norm": 1.0, "gradient_checkpointing": False, "logging_steps": 25, "save_steps": 1000,
            "logging_nan_inf_filter": False, "per_device_eval_batch_size": 32,
        },
        bucketed=True,
    ),
}  # fmt: skip


def read_config(path: Path) -> dict[str, Any]:
    """Reads fields of SFTConfig from a JSON or YAML file. Raises InputError."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path} is neither JSON nor YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a mapping of SFTConfig's fields to values")
    return content


def read_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Parses settings `name=value`, the value as JSON (1e-4, true, null, {"a": 1}) or else as
    text. Raises InputError.
    """
    parsed = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"--set {text!r}: write name=value, such as learning_rate=1e-4")
        try:
            parsed[name.strip()] = json.loads(value)
        except ValueError:
            parsed[name.strip()] = value
    return parsed


PRESET_FIELDS = (
    *("output_dir", "use_cpu", "seed"),
    *(
        "dataset_kwargs",
        "shuffle_dataset",
        "remove_unused_columns",
        "completion_only_loss",
        "eval_strategy",
    ),
)
"""Fields of SFTConfig decided by `rl sft`: by an option, or because rows are tokenized already."""

BUCKETED_OPTIONS = {"per_device_train_batch_size": "--batch-tokens"}
"""Options that replace fields of SFTConfig for presets with bucketed batches."""


def sft_config(preset: Preset, user_settings: Mapping[str, Any], **fixed: object) -> Any:
    """Returns SFTConfig of the preset with the user's settings over it. `fixed`: defaults and
    decided fields.

    Raises InputError for an unknown or decided field, and for a refused value.
    """
    from trl import SFTConfig

    check_settings(SFTConfig, user_settings)
    defaults = {**preset.config, **fixed}
    # transformers' own default of 8 rows would take more memory than a part of a step.
    part_rows = user_settings.get("per_device_train_batch_size")
    part_rows = part_rows or defaults.get("per_device_train_batch_size", 8)
    defaults.setdefault("per_device_eval_batch_size", part_rows)
    decided = {name: defaults.pop(name) for name in PRESET_FIELDS if name in defaults}
    return make_config(SFTConfig, defaults=defaults, user_settings=user_settings, decided=decided)
