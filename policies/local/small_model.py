"""Forward pass of Qwen3 in plain torch, for small models on a CPU.

No import of transformers, a cache allocated once, and rows that advance at different speeds.
Limited to the embedded
policy's form: full attention, no biases, tied or untied head. Equal to transformers up to
rounding (tested).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.policies.local.quantised_weights import has_int8, read_int8_tensors

if TYPE_CHECKING:
    import torch

MAX_PARAMETERS = 100_000_000
"""Weights of a model that is taken for small."""


class LayerWeights(NamedTuple):
    """Weights of a transformer layer, as tensors in the compute dtype."""

    before: torch.Tensor
    qkv: torch.Tensor
    q_norm: torch.Tensor
    k_norm: torch.Tensor
    out: torch.Tensor
    after: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


def is_small(folder: Path) -> bool:
    """Whether the folder holds a model this module can run. Reads config.json only."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        vocabulary, hidden, layers = (
            config["vocab_size"],
            config["hidden_size"],
            config["num_hidden_layers"],
        )
        weights = vocabulary * hidden + layers * hidden * (
            4 * hidden + 3 * config["intermediate_size"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False
    plain = set(config.get("layer_types") or {"full_attention"}) == {"full_attention"}
    rotary = config.get("rope_parameters") or {}
    return (
        config.get("model_type") == "qwen3"
        and plain
        and not config.get("attention_bias")
        and rotary.get("rope_type", "default") == "default"
        and weights <= MAX_PARAMETERS
    )


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Reads tensors by name, as float32. Raises OSError, ValueError."""
    import torch
    from safetensors.torch import load_file

    if has_int8(folder):
        return read_int8_tensors(folder)
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= {name: weight.to(torch.float32) for name, weight in load_file(path).items()}
    return tensors


class KeyValueCache:
    """Keys and values of rows, each (rows, heads, length, head size) a layer."""

    def __init__(self, model: SmallModel, rows: int, length: int) -> None:
        import torch

        shape = (rows, model.kv_heads, length, model.head)
        self.keys = [torch.zeros(shape) for _ in model.layers]
        self.values = [torch.zeros(shape) for _ in model.layers]
        self.length = length

    def keep(self, rows: torch.Tensor) -> None:
        """Keeps the keys and values of these rows alone, given as indices into the present ones."""
        self.keys = [keys[rows] for keys in self.keys]
        self.values = [values[rows] for values in self.values]


class SmallModel:
    """A decoder of the Qwen 3 form, computed with plain torch operators and without transformers."""

    def __init__(self, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """Prepares the model. Raises KeyError for a missing weight."""
        import torch

        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head = config.get("head_dim") or config["hidden_size"] // self.heads
        self.context = int(config["max_position_embeddings"])
        self._eps = config["rms_norm_eps"]
        self._embedding = tensors["model.embed_tokens.weight"]
        self._head = tensors.get("lm_head.weight", self._embedding)
        self._norm = tensors["model.norm.weight"]
        self.layers = [
            _layer(tensors, f"model.layers.{index}.")
            for index in range(config["num_hidden_layers"])
        ]
        theta = (config.get("rope_parameters") or {}).get("rope_theta") or config.get(
            "rope_theta", 10_000.0
        )
        steps = 1.0 / theta ** (torch.arange(0, self.head, 2, dtype=torch.float32) / self.head)
        angles = torch.outer(torch.arange(self.context, dtype=torch.float32), steps).repeat(1, 2)
        self._cos, self._sin = angles.cos(), angles.sin()

    @property
    def vocabulary(self) -> int:
        """The number of tokens the model knows."""
        return self._head.shape[0]

    def forward(
        self,
        ids: torch.Tensor,
        starts: torch.Tensor,
        cache: KeyValueCache,
        selected_steps: torch.Tensor | None = None,
    ) -> Any:
        """Returns the logits (rows, steps, vocabulary), float32.

        `ids`: (rows, steps), the first id of each row at position `starts` (rows,).
        `selected_steps`: (rows,), the only step
        of each row whose logits are computed, then (rows, vocabulary). Ids beyond a row's end may
        be arbitrary: their keys
        and values are overwritten before they are read.
        """
        import torch
        from torch.nn.functional import linear, silu

        rows, steps = ids.shape
        positions = (starts[:, None] + torch.arange(steps)).clamp_(max=cache.length - 1)
        top = int(positions.max()) + 1
        mask = torch.where(torch.arange(top) <= positions[:, :, None], 0.0, float("-inf"))[
            :, None, None
        ]
        cos, sin = self._cos[positions][:, :, None], self._sin[positions][:, :, None]
        row_indices = torch.arange(rows)[:, None]
        x = self._embedding[ids]
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            q, k, v = self._projected(layer, self._normed(x, layer.before), cos, sin)
            keys[row_indices, :, positions] = k
            values[row_indices, :, positions] = v
            x = x + linear(self._attended(q, keys[:, :, :top], values[:, :, :top], mask), layer.out)
            gate, up = linear(self._normed(x, layer.after), layer.gate_up).chunk(2, dim=-1)
            x = x + linear(silu(gate) * up, layer.down)
        if selected_steps is not None:
            x = x[torch.arange(rows), selected_steps]
        return linear(self._normed(x, self._norm), self._head)

    def _projected(
        self, layer: LayerWeights, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """q (rows, steps, heads, head size), k and v (rows, steps, kv heads, head size)."""
        from torch.nn.functional import linear

        both = linear(x, layer.qkv).unflatten(-1, (-1, self.head))
        q, k, v = both.split([self.heads, self.kv_heads, self.kv_heads], dim=2)
        return (
            _turned(self._normed(q, layer.q_norm), cos, sin),
            _turned(self._normed(k, layer.k_norm), cos, sin),
            v,
        )

    def _attended(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Returns attention, with query heads of the same key head as rows of one product.
        `mask`: (rows, 1, 1, steps, top).
        """
        rows, steps = q.shape[:2]
        shared = q.transpose(1, 2).reshape(rows, self.kv_heads, -1, self.head) * self.head**-0.5
        scores = (shared @ keys.transpose(-1, -2)).unflatten(2, (-1, steps)) + mask
        mixed = scores.softmax(dim=-1).flatten(2, 3) @ values
        return mixed.view(rows, self.heads, steps, self.head).transpose(1, 2).flatten(2)

    def _normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        from torch.nn.functional import rms_norm

        return rms_norm(x, weight.shape, weight, self._eps)


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    import torch

    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def _layer(tensors: dict[str, torch.Tensor], at: str) -> LayerWeights:
    import torch

    def joined(*names: str) -> torch.Tensor:
        return torch.cat([tensors[f"{at}{name}.weight"] for name in names])

    attention = [f"self_attn.{name}_proj" for name in "qkv"]
    return LayerWeights(
        before=joined("input_layernorm"), qkv=joined(*attention), q_norm=joined("self_attn.q_norm"),
        k_norm=joined("self_attn.k_norm"), out=joined("self_attn.o_proj"), after=joined("post_attention_layernorm"),
        gate_up=joined("mlp.gate_proj", "mlp.up_proj"), down=joined("mlp.down_proj"),
    )  # fmt: skip


def load_small(folder: Path) -> SmallModel:
    """Loads a model folder. Raises OSError, ValueError, KeyError for an incomplete folder."""
    return SmallModel(
        json.loads((folder / "config.json").read_text(encoding="utf-8")), read_tensors(folder)
    )
