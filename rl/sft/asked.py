"""What a user asked `rl sft` for, checked before anything heavy starts. Every refusal is an InputError."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from agent.asked import choose_device
from agent.exits import InputError
from policies.base import PromptForm
from rl.data.rows import Kind
from rl.sft.encoding import Choice
from rl.sft.options import Storage
from rl.sft.presets import PRESETS, PresetName, read_config, read_settings

Of = TypeVar("Of", bound=StrEnum)


def preset_of(asked: str | None, base: str) -> PresetName:
    if asked is None:
        return PresetName.SCRATCH if base.startswith("new:") else PresetName.LORA
    return _one(PresetName, asked, "--preset")


def device_of(asked: str, preset: PresetName) -> str:
    """`auto` finds no CPU for a recipe in 4 bits: there it is for trying it out, and that is to be asked for by name."""
    place = choose_device(asked)
    if PRESETS[preset].four_bit and place == "cpu" and asked != "cpu":
        raise InputError(
            "this preset needs an NVIDIA GPU (4-bit weights, bitsandbytes): use --preset lora on a CPU, or --device cpu to try it with a small model"
        )
    return place


def form_of(asked: str | None, base: str) -> PromptForm:
    """A small policy is asked in the compact form, a language model in sentences."""
    if asked is None:
        return PromptForm.COMPACT if base.startswith("new:") else PromptForm.CHAT
    return _one(PromptForm, asked, "--form")


def storage_of(asked: str) -> Storage:
    return _one(Storage, asked, "--weights")


def choice_of(
    form: PromptForm, kinds: str | None, share: float, without_message: bool, repairs: int, fim: float, seed: int
) -> Choice:
    chosen = tuple(_one(Kind, name.strip(), "--kinds") for name in kinds.split(",")) if kinds else tuple(Kind)
    return Choice(
        form=form, kinds=chosen, share=share, without_message=without_message, repairs=repairs, fim=fim, seed=seed
    )


def settings_of(config: Path | None, settings: Sequence[str]) -> dict[str, Any]:
    """The file's fields, and those of the command line over them."""
    return {**(read_config(config) if config else {}), **read_settings(settings)}


def _one(kind: type[Of], asked: str, option: str) -> Of:
    try:
        return kind(asked)
    except ValueError:
        raise InputError(f"{option} {asked!r}: choose {', '.join(kind)}") from None
