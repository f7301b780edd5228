"""Checks a user's settings (`--set`) for a config of trl's before anything is made.

A field that a command decides itself is refused with the option to use instead, so that no setting is overridden or
ignored in silence. What trl refuses is told in one line.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from kernelwright.errors import InputError
from kernelwright.policies.base import Sampling

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
"""The option of `rl train` that takes the place of a field of trl's configs, or of a sampler's."""
UNUSED_FIELD_PREFIXES = ("dataloader_", "dataset_", "do_", "eval_", "per_device_eval_")
"""Fields about loading, tokenizing and evaluating a dataset: rows here are token ids, and are not evaluated by trl."""
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
"""Fields of trl's configs that `rl train` decides itself whatever the method, or that have no effect there."""
WARM_UP_SHARE = 0.1
"""Share of a training's optimizer steps in which the learning rate rises, unless the user sets it."""


def warm_up_steps(max_steps: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """`warmup_steps` for a training of `max_steps` optimizer steps, rounded down; empty where `given` sets a warm-up.

    The first step of a warm-up has a learning rate of 0, so a training of fewer than ten steps has none.
    """
    if given.keys() & {"warmup_steps", "warmup_ratio"}:
        return {}
    return {"warmup_steps": int(WARM_UP_SHARE * max_steps)}


def check_settings(kind: Any, given: Mapping[str, Any]) -> None:
    """`kind`: a dataclass.

    Raises InputError for a name that it has not, and for text where a number, or true or false, is wanted.
    """
    known = {field.name: field.default for field in fields(kind) if field.init}
    for name, value in given.items():
        if name not in known:
            near = ", ".join(difflib.get_close_matches(name, known, 3)) or "see trl's documentation"
            raise InputError(f"{kind.__name__} has no field {name!r}: near ones are {near}")
        if isinstance(value, str) and isinstance(known[name], int | float):
            wanted = "true or false" if isinstance(known[name], bool) else "a number"
            raise InputError(f"{name}={value}: expected {wanted}")


def decided_fields(kind: Any) -> frozenset[str]:
    """Returns the fields of one of trl's configs that `rl train` decides, or that have no effect there."""
    unused = {field.name for field in fields(kind) if field.name.startswith(UNUSED_FIELD_PREFIXES)}
    return DECIDED_FIELDS | unused


def refuse_decided(
    given: Mapping[str, Any], decided: Collection[str], options: Mapping[str, str] = FIELD_OPTIONS
) -> None:
    """Raises InputError for a field that the command decides, with the option to use instead if there is one."""
    for name, value in given.items():
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
    kind: Any, *, defaults: Mapping[str, Any], given: Mapping[str, Any], decided: Mapping[str, Any]
) -> Any:
    """Returns a config with the user's settings over `defaults`, and the fields that the command decides.

    Raises InputError where a setting names a decided field, and where the config refuses a value.
    """
    refuse_decided(given, decided)
    try:
        with warnings.catch_warnings():
            # Newer transformers call gradient_checkpointing otherwise; both names work with all that we support.
            warnings.simplefilter("ignore", FutureWarning)
            return kind(**{**defaults, **given, **decided})
    except (TypeError, ValueError, ImportError) as error:
        raise InputError(
            f"{kind.__name__} refuses these settings: {str(error).splitlines()[0]}"
        ) from error


def keep_trainer_quiet(trainer: Any) -> None:
    """Leaves the terminal to this project's own progress: no bars and no prints of trl and transformers.

    A resumed training warns of "missing keys ... lm_head.weight": a head that is tied to the embeddings is not stored.
    """
    from transformers import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    silence_libraries()


def silence_libraries() -> None:
    """Turns off bars and warnings of transformers and datasets. Downloads keep their bars: they may take long."""
    from datasets import disable_progress_bars
    from transformers.utils import logging

    disable_progress_bars()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
