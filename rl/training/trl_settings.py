"""Checks a user's settings (`--set`) for a config of trl's before the config is built.

A field decided by the command is refused, with the option to use instead, so no setting is
silently overridden or ignored. Errors of trl become one line.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from kernelwright.errors import InputError
from kernelwright.policies.base import Sampling

if TYPE_CHECKING:
    from transformers import Trainer

FIELD_OPTIONS: Mapping[str, str] = {
    # Rollouts are sampled from the whole distribution, which the temperature alone changes.
    **dict.fromkeys(Sampling.model_fields, "--temperature"),
    "output_dir": "--out",
    "max_steps": "--max-steps (--steps of rl loop)",
    "num_train_epochs": "--epochs",
    "seed": "--seed",
    "data_seed": "--seed",
    "use_cpu": "--device",
    "max_length": "--max-length",
    "max_completion_length": "--reply-tokens",
    "max_tokens": "--reply-tokens",
    "top_p": "--top-p",
    "num_generations": "--group",
    "generation_batch_size": "--problems-per-step",
    "use_vllm": "--engine",
    "vllm_mode": "--engine",
    "vllm_server_base_url": "--engine openai:MODEL@URL",
    "reward_weights": "--reward",
    "scale_rewards": "--reward",
}
"""The option of `rl train` that replaces a field of trl's configs or of a sampler's."""
UNUSED_FIELD_PREFIXES = ("dataloader_", "dataset_", "do_", "eval_", "per_device_eval_")
"""Prefixes of fields for loading, tokenizing and evaluating a dataset: rows here are token ids,
and trl does not evaluate them.
"""
DECIDED_FIELDS = frozenset(
    {
        *FIELD_OPTIONS,
        *("resume_from_checkpoint", "load_best_model_at_end", "metric_for_best_model"),
        *("model_init_kwargs", "trust_remote_code"),
        *("train_sampling_strategy", "shuffle_dataset", "length_column_name", "label_names"),
        *("chat_template_path", "truncation_mode", "packing", "packing_strategy"),
        *("completion_only_loss", "assistant_only_loss"),
    }
)
"""Fields of trl's configs decided by `rl train` for every method, or without effect there."""
WARM_UP_SHARE = 0.1
"""Share of the optimizer steps with a rising learning rate, unless the user sets a warm-up."""


def warm_up_steps(max_steps: int, user_settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `warmup_steps` for a training of `max_steps` optimizer steps, rounded down; empty
    if `user_settings` has a warm-up.

    The first step of a warm-up has a learning rate of 0, so a training of fewer than ten steps
    has none.
    """
    if user_settings.keys() & {"warmup_steps", "warmup_ratio"}:
        return {}
    return {"warmup_steps": int(WARM_UP_SHARE * max_steps)}


def check_settings(kind: type[Any], user_settings: Mapping[str, Any]) -> None:
    """Raises InputError for a name that the dataclass `kind` has not, and for text instead of a
    number or a boolean.
    """
    defaults = {field.name: field.default for field in fields(kind) if field.init}
    for name, value in user_settings.items():
        if name not in defaults:
            near = (
                ", ".join(difflib.get_close_matches(name, defaults, 3)) or "see trl's documentation"
            )
            raise InputError(f"{kind.__name__} has no field {name!r}: near ones are {near}")
        if isinstance(value, str) and isinstance(defaults[name], int | float):
            expected = "true or false" if isinstance(defaults[name], bool) else "a number"
            raise InputError(f"{name}={value}: expected {expected}")


def decided_fields(kind: type[Any]) -> frozenset[str]:
    """Returns the fields of a trl config decided by `rl train`, or without effect there."""
    unused = {field.name for field in fields(kind) if field.name.startswith(UNUSED_FIELD_PREFIXES)}
    return DECIDED_FIELDS | unused


def refuse_decided(
    user_settings: Mapping[str, Any],
    decided: Collection[str],
    options: Mapping[str, str] = FIELD_OPTIONS,
) -> None:
    """Raises InputError for a field decided by the command, with the option to use instead if
    there is one.
    """
    for name, value in user_settings.items():
        if name not in decided:
            continue
        option = options.get(name)
        remedy = (
            f"use {option} instead"
            if option
            else "this command decides that field itself, so leave it out"
        )
        raise InputError(f"--set {name}={value}: {remedy}")


def make_config(
    kind: type[Any],
    *,
    defaults: Mapping[str, Any],
    user_settings: Mapping[str, Any],
    decided: Mapping[str, Any],
) -> Any:
    """Returns a config with the user's settings over `defaults`, and with the fields decided by
    the command.

    Raises InputError for a setting of a decided field, and for a value refused by the config.
    """
    refuse_decided(user_settings, decided)
    try:
        with warnings.catch_warnings():
            # Newer transformers rename gradient_checkpointing; all supported versions know both
            # names.
            warnings.simplefilter("ignore", FutureWarning)
            return kind(**{**defaults, **user_settings, **decided})
    except (TypeError, ValueError, ImportError) as error:
        raise InputError(
            f"{kind.__name__} refuses these settings: {str(error).splitlines()[0]}"
        ) from error


def keep_trainer_quiet(trainer: Trainer) -> None:
    """Disables the bars and prints of trl and transformers; the project prints its own progress.

    A resumed training warns of "missing keys ... lm_head.weight": a head tied to the embeddings
    is not stored.
    """
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    silence_libraries()


def silence_libraries() -> None:
    """Disables bars and warnings of transformers and datasets. Downloads keep their bars, since
    they may take long.
    """
    from datasets import disable_progress_bars
    from transformers.utils import logging

    disable_progress_bars()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
