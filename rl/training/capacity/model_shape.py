"""Sizes of a model, read from its config, for estimates of memory and time."""

from __future__ import annotations

from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.rl.training.sft.presets import Lora

BF16_BYTES = 2
MIN_CHECKPOINTED_PARAMETERS = 200_000_000
"""Number of parameters above which gradient checkpointing is on by default."""


class ModelShape(Value):
    """Parameters and widths of a causal language model."""

    name: str
    parameters: int
    layers: int
    layer_parameters: int
    """Parameters of the largest decoder layer."""
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    lora_parameters: int
    """Parameters of an adapter of the recipe of `--lora`."""

    @property
    def root_parameters(self) -> int:
        """Parameters outside of the decoder layers: embeddings, head, last norm."""
        return self.parameters - self.layers * self.layer_parameters

    @property
    def kv_bytes(self) -> int:
        """Bytes of the KV cache for each token, in bf16."""
        return 2 * self.layers * self.kv_heads * self.head_width * BF16_BYTES

    @property
    def layer_bytes(self) -> int:
        """Bytes held by a decoder layer for each token between its forward and backward pass.

        In bf16, with the fp32 copies inside of RMS norms: input, norms and residuals 18 a hidden
        channel; queries and attention 16 a head channel, keys and values 10; gate, up, activation
        and product 8 an inner channel.
        """
        query = self.heads * self.head_width
        key = self.kv_heads * self.head_width
        return 18 * self.hidden + 16 * query + 10 * key + 8 * self.inner


def shape_of(path: str, recipe: Lora) -> ModelShape:
    """Returns the shape of the model in a folder or of a hub name. Raises InputError."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(path)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except Exception as error:
        # A broken folder makes transformers raise errors of many kinds.
        first = str(error).strip().splitlines()[0][:200]
        raise InputError(f"no config of a language model at {path}: {first}") from error
    text = config.get_text_config()
    names = set(model._no_split_modules or ())
    layers = [module for module in model.modules() if type(module).__name__ in names]
    heads = int(text.num_attention_heads)
    return ModelShape(
        name=path,
        parameters=_size(model),
        layers=len(layers),
        layer_parameters=max(map(_size, layers), default=0),
        hidden=text.hidden_size,
        inner=text.intermediate_size,
        heads=heads,
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        head_width=getattr(text, "head_dim", None) or text.hidden_size // heads,
        vocabulary=text.vocab_size,
        lora_parameters=_lora_size(model, recipe),
    )


def _size(module: object) -> int:
    return sum(weight.numel() for weight in module.parameters())  # type: ignore[attr-defined]


def _lora_size(model: object, recipe: Lora) -> int:
    """Returns the parameters of A (rank x inputs) and B (outputs x rank) of all adapted matrices."""
    size = 0
    for name, module in model.named_modules():  # type: ignore[attr-defined]
        if name.rpartition(".")[2] in recipe.targets and hasattr(module, "in_features"):
            size += recipe.rank * (module.in_features + module.out_features)
    return size
