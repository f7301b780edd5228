"""LoRA adapters of a training: the initial weights of a new adapter, and the stored weights of an
adapter that is continued.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.errors import InputError

if TYPE_CHECKING:
    import torch
    from peft import LoraConfig

    from kernelwright.rl.training.sft.presets import Lora


def lora_config(recipe: Lora) -> LoraConfig:
    """Returns peft's configuration of a recipe."""
    from peft import LoraConfig

    return LoraConfig(
        r=recipe.rank,
        lora_alpha=recipe.alpha,
        lora_dropout=recipe.dropout,
        target_modules=list(recipe.targets),
        task_type="CAUSAL_LM",
    )


def add_new_adapter(model: Any, recipe: Lora) -> Any:
    """Returns the model in a PeftModel with a new adapter, whose weights `initial_weights` gives."""
    from peft import get_peft_model

    return get_peft_model(model, lora_config(recipe))


def initial_weights(model: torch.nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """Returns the initial weights of a new adapter by name: A uniform (He et al., as in peft), B
    zero.

    A function of seed and shapes alone, so that a sharded model starts from the same adapter as a
    whole one.
    """
    import torch

    dice = torch.Generator().manual_seed(seed)
    weights = {}
    for name, parameter in model.named_parameters():
        if "lora_A" in name:
            drawn = torch.empty(parameter.shape)
            torch.nn.init.kaiming_uniform_(drawn, a=math.sqrt(5), generator=dice)
            weights[name] = drawn
        elif "lora_B" in name:
            weights[name] = torch.zeros(parameter.shape)
    return weights


def add_stored_adapter(model: Any, folder: Path) -> Any:
    """Returns the model in a PeftModel with the shapes of a stored adapter, whose weights
    `stored_weights` gives.
    """
    from peft import PeftConfig, get_peft_model

    config: Any = PeftConfig.from_pretrained(str(folder))
    config.inference_mode = False
    return get_peft_model(model, config)


def stored_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Returns the weights of a stored adapter by their names in a PeftModel. Raises InputError for
    an adapter that is not stored as safetensors.
    """
    from safetensors.torch import load_file

    path = folder / "adapter_model.safetensors"
    if not path.is_file():
        raise InputError(f"{folder} has no adapter_model.safetensors: save the adapter again")
    return {_name_in_model(name): weight for name, weight in load_file(path).items()}


def _name_in_model(name: str) -> str:
    """Returns a stored name with the adapter's: `...lora_A.weight` is `...lora_A.default.weight`."""
    stem, _, last = name.rpartition(".")
    return f"{stem}.default.{last}"
