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
from kernelwright.rl.training.sft.encoding import RowSelection
from kernelwright.rl.training.sft.options import WrittenWeights
from kernelwright.rl.training.sft.presets import PRESETS, PresetName, read_config, read_settings

Of = TypeVar("Of", bound=StrEnum)


def parse_preset(text: str | None, base: str) -> PresetName:
    """The preset that `--preset` names; without it scratch for a new model and LoRA for one that exists."""
    if text is None:
        return PresetName.SCRATCH if base.startswith("new:") else PresetName.LORA
    return _parse_enum(PresetName, text, "--preset")


def parse_device(text: str, preset: PresetName) -> str:
    """`auto` finds no CPU for a recipe in 4 bits: there it is for trying it out, and that is to be text for by name."""
    place = choose_device(text)
    if PRESETS[preset].four_bit and place == "cpu" and text != "cpu":
        raise InputError(
            "this preset needs an NVIDIA GPU (4-bit weights, bitsandbytes): use --preset lora on a CPU, or "
            "--device cpu to try it with a small "
            "model"
        )
    return place


def parse_prompt_form(text: str | None, base: str) -> PromptForm:
    """Returns the form of `--form`; without it compact for a new model, else the one that the base's card names."""
    if text is None:
        return (
            PromptForm.COMPACT
            if base.startswith("new:")
            else read_card(Path(base).expanduser()).prompt_form
        )
    return _parse_enum(PromptForm, text, "--form")


def parse_weight_storage(text: str) -> WrittenWeights:
    """The number format of the written weights, as `--storage` names it."""
    return _parse_enum(WrittenWeights, text, "--storage")


def parse_row_selection(
    form: PromptForm,
    kinds: str | None,
    share: float,
    without_message: bool,
    repairs: int,
    fim: float,
    seed: int,
) -> RowSelection:
    """Returns the selection of rows and the form of their prompts. `kinds`: names of `Kind`, separated by commas; None
    selects all.
    """
    chosen = (
        tuple(_parse_enum(Kind, name.strip(), "--kinds") for name in kinds.split(","))
        if kinds
        else tuple(Kind)
    )
    return RowSelection(
        form=form,
        kinds=chosen,
        share=share,
        without_message=without_message,
        repairs=repairs,
        fim=fim,
        seed=seed,
    )


def read_trainer_settings(config: Path | None, settings: Sequence[str]) -> dict[str, Any]:
    """Fields of SFTConfig from the file of `--config`, overridden by those of `--set`."""
    return {**(read_config(config) if config else {}), **read_settings(settings)}


def _parse_enum(kind: type[Of], text: str, option: str) -> Of:
    try:
        return kind(text)
    except ValueError:
        raise InputError(f"{option} {text!r}: choose {', '.join(kind)}") from None
