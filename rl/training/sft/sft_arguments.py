"""Parses the arguments of `rl sft` before anything heavy starts. Every refusal is an InputError."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from kernelwright.agent.runtime.arguments import choose_device
from kernelwright.errors import InputError
from kernelwright.policies.base import PromptForm
from kernelwright.policies.policy_card import read_card
from kernelwright.rl.data.rows import Kind
from kernelwright.rl.training.sft.options import WrittenWeights
from kernelwright.rl.training.sft.presets import PRESETS, PresetName, read_config, read_settings

Of = TypeVar("Of", bound=StrEnum)


def parse_preset(text: str | None, base: str) -> PresetName:
    """Returns the preset of `--preset`; without the option scratch for a new model and LoRA for
    an existing model.
    """
    if text is None:
        return PresetName.SCRATCH if base.startswith("new:") else PresetName.LORA
    return _parse_enum(PresetName, text, "--preset")


def parse_device(text: str, preset: PresetName) -> str:
    """Returns the device. `auto` never selects the CPU for a 4-bit recipe, which works there only
    for trials: the CPU must be named.
    """
    device = choose_device(text)
    if PRESETS[preset].four_bit and device == "cpu" and text != "cpu":
        raise InputError(
            "this preset needs an NVIDIA GPU (4-bit weights, bitsandbytes): use --preset lora on a CPU, or "
            "--device cpu to try it with a small model"
        )
    return device


def parse_prompt_form(text: str | None, base: str) -> PromptForm:
    """Returns the form of `--form`; without the option compact for a new model, else the form in
    the base's card.
    """
    if text is not None:
        return _parse_enum(PromptForm, text, "--form")
    if base.startswith("new:"):
        return PromptForm.COMPACT
    return read_card(Path(base).expanduser()).prompt_form


def parse_weight_storage(text: str) -> WrittenWeights:
    """Returns the number format of the written weights, as named by `--storage`."""
    return _parse_enum(WrittenWeights, text, "--storage")


def parse_kinds(text: str | None) -> tuple[Kind, ...]:
    """Returns the kinds of rows in `text`, names separated by commas; None selects all."""
    if not text:
        return tuple(Kind)
    return tuple(_parse_enum(Kind, name.strip(), "--kinds") for name in text.split(","))


def read_trainer_settings(config: Path | None, settings: Sequence[str]) -> dict[str, Any]:
    """Returns fields of SFTConfig from the file of `--config`, overridden by those of `--set`."""
    return {**(read_config(config) if config else {}), **read_settings(settings)}


def _parse_enum(kind: type[Of], text: str, option: str) -> Of:
    try:
        return kind(text)
    except ValueError:
        raise InputError(f"{option} {text!r}: choose {', '.join(kind)}") from None
