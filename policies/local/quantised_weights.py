"""Weights as eight-bit numbers with a scale a row: a quarter of float32, for a model that is to be small on the
disk. In memory they are whole again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel

INT8_FILE = "weights.int8.safetensors"
_SCALE = ".scale"


def write_int8(model: PreTrainedModel, folder: Path) -> None:
    """Config, generation config and weights: matrices as int8 with a float32 scale for each row, all else as
    float32. Tied weights once.
    """
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, torch.Tensor] = {}
    written_pointers: set[int] = set()
    for name, weight in model.state_dict().items():
        if weight.data_ptr() in written_pointers:
            continue
        written_pointers.add(weight.data_ptr())
        weight = weight.detach().to("cpu", torch.float32)
        if weight.ndim != 2:
            tensors[name] = weight.contiguous()
            continue
        scale = weight.abs().amax(dim=1, keepdim=True).clamp_(min=1e-12) / 127.0
        tensors[name] = (weight / scale).round_().to(torch.int8)
        tensors[name + _SCALE] = scale.squeeze(1)
    save_file(tensors, folder / INT8_FILE, metadata={"format": "pt"})
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)


def has_int8(folder: Path) -> bool:
    """Says whether a folder holds weights in the int8 form."""
    return (folder / INT8_FILE).is_file()


def read_int8_tensors(folder: Path) -> dict[str, Any]:
    """Reads tensors by name, as float32. Raises OSError, ValueError."""
    import torch
    from safetensors.torch import load_file

    tensors = load_file(folder / INT8_FILE)
    weights = {}
    for name, weight in tensors.items():
        if not name.endswith(_SCALE):
            scale = tensors.get(name + _SCALE)
            weights[name] = weight if scale is None else weight.to(torch.float32) * scale[:, None]
    return weights


def read_int8(folder: Path) -> Any:
    """Returns the transformers model in float32 on the CPU.

    Raises OSError, ValueError or RuntimeError if the file does not match the config.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(
        AutoConfig.from_pretrained(folder), dtype=torch.float32
    )
    missing, unexpected = model.load_state_dict(read_int8_tensors(folder), strict=False)
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    if unexpected or set(missing) - tied:
        raise ValueError(f"{folder / INT8_FILE} does not fit its config.json")
    return model
