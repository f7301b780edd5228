"""Fields of `--set` that a command decides or that change nothing are refused, and the option to use is named."""

from __future__ import annotations

from dataclasses import fields

import pytest

trl = pytest.importorskip("trl")

from kernelwright.errors import InputError  # noqa: E402
from kernelwright.policies.base import Sampling  # noqa: E402
from kernelwright.rl.cli import build  # noqa: E402
from kernelwright.rl.training.grpo.config import (  # noqa: E402
    GRPOFacts,
    checked_settings,
    decided_grpo_fields,
    grpo_config,
)
from kernelwright.rl.training.sft.presets import BUCKETED_OPTIONS, PRESETS, PresetName, sft_config  # noqa: E402
from kernelwright.rl.training.trl_settings import FIELD_OPTIONS, decided_fields, refuse_decided  # noqa: E402

GRPO_FIELDS = {field.name for field in fields(trl.GRPOConfig)}


@pytest.mark.parametrize("name", sorted(GRPO_FIELDS & {*Sampling.model_fields, *FIELD_OPTIONS}))
def test_a_field_of_the_sampler_or_of_an_option_is_refused(name):
    with pytest.raises(InputError, match=f"--set {name}=1: "):
        checked_settings({name: 1})


@pytest.mark.parametrize("kind", [trl.GRPOConfig, trl.SFTConfig, trl.DPOConfig, trl.KTOConfig])
def test_a_decided_field_is_one_of_a_config_or_of_the_sampler(kind):
    known = {
        field.name
        for config in (trl.GRPOConfig, trl.SFTConfig, trl.DPOConfig)
        for field in fields(config)
    }
    assert decided_fields(kind) <= known | set(Sampling.model_fields)


def test_the_options_that_refusals_name_exist():
    import typer

    commands = typer.main.get_command(build()).commands
    known = {
        name
        for command in ("train", "loop")
        for param in commands[command].params
        for name in param.opts
    }
    named = {
        word.strip("(,") for text in FIELD_OPTIONS.values() for word in text.split() if "--" in word
    }
    assert named <= known


def test_every_field_that_this_code_fills_in_is_refused_where_a_user_gives_it():
    facts = GRPOFacts(
        output_dir="x", max_steps=1, seed=0, device="cpu", parameters=1, lora=False, temperature=1.6,
        longest_completion=8,
    )  # fmt: skip
    config = grpo_config({"learning_rate": 3e-4, "beta": 0.1}, facts)
    assert (config.temperature, config.learning_rate, config.beta) == (1.6, 3e-4, 0.1)
    for name in (
        "temperature",
        "max_completion_length",
        "num_generations",
        "steps_per_generation",
        "use_cpu",
    ):
        with pytest.raises(InputError, match=f"--set {name}"):
            grpo_config({name: 2}, facts)
        assert name in decided_grpo_fields()


def test_what_changes_the_loss_is_taken():
    given = {
        "loss_type": "dr_grpo",
        "delta": 2.0,
        "top_entropy_quantile": 0.5,
        "report_to": "none",
        "save_steps": 5,
    }
    assert checked_settings(given) == given
    correction = {"vllm_importance_sampling_mode": "token_truncate"}
    assert checked_settings(correction, decoupled=True) == correction
    with pytest.raises(InputError, match="add --decoupled"):
        checked_settings(correction)


def test_a_seed_of_rl_sft_is_given_by_its_option():
    fixed = {"output_dir": "x", "use_cpu": True, "seed": 0, "report_to": "none"}
    with pytest.raises(InputError, match="--set seed=5: use --seed instead"):
        sft_config(PRESETS[PresetName.SCRATCH], {"seed": 5}, **fixed)
    assert sft_config(PRESETS[PresetName.SCRATCH], {"logging_steps": 7}, **fixed).logging_steps == 7


def test_nothing_is_refused_without_a_reason():
    refuse_decided({"learning_rate": 1.0}, FIELD_OPTIONS)


def test_the_batch_of_a_preset_with_our_batches_is_given_in_tokens():
    with pytest.raises(
        InputError, match="--set per_device_train_batch_size=8: use --batch-tokens instead"
    ):
        refuse_decided({"per_device_train_batch_size": 8}, BUCKETED_OPTIONS, BUCKETED_OPTIONS)
