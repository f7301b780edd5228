"""The base model of a training: a folder, a hub name, or a new model of a named size, with its
tokenizer.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.agent.runtime.errors import require
from kernelwright.errors import InputError
from kernelwright.policies.base import PolicyRefused
from kernelwright.policies.model_identity import adapter_folder, identity_of, model_config
from kernelwright.rl.training.processes import is_sharded
from kernelwright.rl.training.sft.adapters import (
    add_new_adapter,
    add_stored_adapter,
    initial_weights,
    stored_weights,
)
from kernelwright.rl.training.sft.presets import Preset
from kernelwright.rl.training.sharding.loading import assign_whole, load_sharded
from kernelwright.rl.training.tokenizing import CHAT_TEMPLATE

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

log = logging.getLogger(__name__)

CONTEXT_TOKENS = 4096
"""Context length of a new model, in tokens."""


class ModelSize(NamedTuple):
    """The size of a new model: widths, layers and attention heads."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    inner: int


MODEL_SIZES = {
    "tiny": ModelSize(64, 2, 2, 1, 32, 128),
    "1m": ModelSize(128, 4, 4, 2, 32, 384),
    "2m": ModelSize(192, 4, 6, 3, 32, 512),
    "4m": ModelSize(224, 6, 7, 7, 32, 608),
    "7m": ModelSize(288, 6, 9, 3, 32, 768),
    "10m": ModelSize(320, 8, 5, 5, 64, 864),
    "14m": ModelSize(384, 8, 6, 3, 64, 1024),
    "28m": ModelSize(512, 9, 8, 4, 64, 1472),
    "38m": ModelSize(576, 10, 9, 3, 64, 1664),
}
"""Qwen3 shapes for a vocabulary of about 4,096: 14m in bf16 and 28m in int8 are under 32 MB."""
NEW_MODEL_PREFIX = "new:"


class TrainingBase(NamedTuple):
    """The model and tokenizer at the start of a training."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    """The name given by the user."""


def is_new(base: str) -> bool:
    """Returns whether a name stands for a model with random weights."""
    return base.startswith(NEW_MODEL_PREFIX)


def check_base(base: str, adapter: str | None, preset: Preset) -> None:
    """Refuses an unusable base model before anything is loaded. Raises InputError and
    PolicyRefused.
    """
    if preset.four_bit:
        require("bitsandbytes")
    if is_new(base):
        _size(base)
        if preset.lora is not None or adapter is not None:
            raise InputError(
                f"{base} starts from random weights: train all of them, with --preset scratch"
            )
    else:
        model_config(base)
    if adapter is not None:
        _check_adapter(adapter, base)


def load_tokenizer(folder: str) -> PreTrainedTokenizerBase:
    """Loads the tokenizer of a folder, with a pad token and a chat template. Raises InputError if
    unreadable.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    except Exception as error:
        # A foreign folder may raise anything; every error means: no tokenizer.
        raise InputError(
            f"no tokenizer in {folder}: {_first(error)} (rl tokenizer makes one)"
        ) from error
    if tokenizer.eos_token_id is None:
        raise InputError(
            f"the tokenizer of {folder} has no end token: give another with --tokenizer"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.chat_template is None:
        log.warning("%s has no chat template: it gets this project's", folder)
        tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def load_base(
    base: str,
    tokenizer: PreTrainedTokenizerBase,
    preset: Preset,
    device: str,
    seed: int,
    adapter: str | None = None,
) -> TrainingBase:
    """Loads the model on the CPU (4-bit: on the training device; sharded: each process its part),
    with the preset's new adapter or the continued `adapter`.

    Weights are float32 if all are trained, and bf16 if only an adapter is. Raises InputError.
    """
    model = (
        _new(base, tokenizer, seed) if is_new(base) else _existing(base, preset, device, adapter)
    )
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise InputError(
            f"the tokenizer has {len(tokenizer)} tokens and {base} knows {rows}: give the tokenizer that "
            f"{base} was trained with"
        )
    return TrainingBase(_with_adapter(model, base, preset, adapter, seed), tokenizer, base)


def _with_adapter(model: Any, base: str, preset: Preset, adapter: str | None, seed: int) -> Any:
    """Returns the model with its adapter's weights, if the training has an adapter."""
    if preset.lora is None and adapter is None:
        return model
    if is_sharded():
        weights = initial_weights(model, seed) if adapter is None else stored_weights(Path(adapter))
        assign_whole(model, weights)
        return model
    from peft import PeftModel, prepare_model_for_kbit_training

    if preset.four_bit:
        # The trainer turns on gradient checkpointing by its config.
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    if adapter is None:
        assert preset.lora is not None
        adapted = add_new_adapter(model, preset.lora)
        assign_whole(adapted, initial_weights(adapted, seed))
        return adapted
    try:
        return PeftModel.from_pretrained(model, adapter, is_trainable=True)
    except Exception as error:
        # peft raises errors of many kinds for a mismatch.
        raise InputError(
            f"the adapter {adapter} does not fit {base}: {_first(error)[:200]}"
        ) from error


def check_same_tokenizer(base: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises InputError if the base has a tokenizer and the given tokenizer is another."""
    if is_new(base):
        return
    expected_hash = identity_of(load_tokenizer(base)).tokenizer_hash
    if expected_hash != identity_of(tokenizer).tokenizer_hash:
        raise InputError(
            f"this tokenizer is not the one that {base} was trained with: leave --tokenizer out"
        )


def parameters(model: torch.nn.Module) -> int:
    """Counts the numbers of a model; two 4-bit weights share a byte."""
    return sum(_count(parameter) for parameter in model.parameters())


def _count(parameter: torch.nn.Parameter) -> int:
    packed = getattr(parameter, "quant_state", None)
    return parameter.numel() if packed is None else math.prod(packed.shape)


def _size(base: str) -> ModelSize:
    name = base.removeprefix(NEW_MODEL_PREFIX).lower()
    if name not in MODEL_SIZES:
        raise InputError(
            f"{base}: choose {', '.join(NEW_MODEL_PREFIX + size for size in MODEL_SIZES)}"
        )
    return MODEL_SIZES[name]


def _new(base: str, tokenizer: PreTrainedTokenizerBase, seed: int) -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    size = _size(base)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        hidden_size=size.hidden,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.head,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)


def _sharded(
    base: str, preset: Preset, dtype: torch.dtype, device: str, adapter: str | None
) -> Any:
    """Returns this process's part of the model, with the shapes of its adapter."""
    lora = preset.lora
    add: Callable[[Any], Any] | None = None
    if adapter is not None:
        folder = Path(adapter)
        add = partial(add_stored_adapter, folder=folder)
    elif lora is not None:
        add = partial(add_new_adapter, recipe=lora)
    return load_sharded(_known_as(base), device, dtype, add)


def _existing(base: str, preset: Preset, device: str, adapter: str | None) -> Any:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    options: dict[str, Any] = {"dtype": torch.float32 if preset.lora is None else torch.bfloat16}
    if preset.lora is not None and device == "cpu":
        options["dtype"] = torch.float32
    if preset.four_bit:
        options |= {
            "quantization_config": _four_bit(),
            "device_map": {"": 0 if device.startswith("cuda") else "cpu"},
            "dtype": torch.bfloat16,
        }
    # Counted before and after: see `_refused_memory`.
    refused = _refused_memory()
    transformers_logging.disable_progress_bar()
    try:
        if is_sharded():
            return _sharded(base, preset, options["dtype"], device, adapter)
        # A folder is named by its absolute path: an adapter stores the name of the base that it was made for.
        return AutoModelForCausalLM.from_pretrained(_known_as(base), **options)
    except InputError:
        raise
    except Exception as error:
        # A broken folder makes transformers raise errors of many kinds.
        if isinstance(error, torch.OutOfMemoryError) or _refused_memory() > refused:
            smaller = (
                "a smaller base" if preset.four_bit else "--preset qlora-3090, or a smaller base"
            )
            raise InputError(f"{base} does not fit in this GPU's memory: use {smaller}") from error
        raise InputError(f"cannot load the base model {base}: {_first(error)}") from error


def _refused_memory() -> int:
    """Returns how often CUDA's allocator has refused memory.

    transformers keeps only the text of errors while packing weights, so the counter identifies an
    out-of-memory error.
    """
    import torch

    return int(torch.cuda.memory_stats().get("num_ooms", 0)) if torch.cuda.is_initialized() else 0


def _four_bit() -> Any:
    import torch
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16,
        bnb_4bit_use_double_quant=True
    )  # fmt: skip


def _check_adapter(adapter: str, base: str) -> None:
    """Raises InputError if the adapter's own configuration names another base."""
    try:
        folder = adapter_folder(adapter)
        notes = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    except PolicyRefused as error:
        raise InputError(str(error)) from error
    except (OSError, ValueError) as error:
        raise InputError(
            f"{adapter}/adapter_config.json cannot be read: save the adapter again"
        ) from error
    made_for = str(notes.get("base_model_name_or_path") or "")
    if made_for and _known_as(made_for) != _known_as(base):
        raise InputError(
            f"the adapter {adapter} was made for {made_for}, not for {base}: give that as --base"
        )


def _known_as(base: str) -> str:
    folder = Path(base).expanduser()
    return str(folder.resolve()) if folder.exists() else re.sub(r"/+$", "", base)


def _first(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
