"""Key/value cache as a ring: every layer writes at a common column, and returns all columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


def rotating_cache(model: PreTrainedModel, rows: int, length: int) -> tuple[Any, torch.Tensor]:
    """A cache whose layers write at a common column, and that column."""
    import torch
    from transformers.cache_utils import Cache, CacheLayerMixin

    column = torch.zeros(1, dtype=torch.long, device=model.device)

    class RingLayer(CacheLayerMixin):
        is_sliding = False

        def __init__(self, shape: tuple[int, ...]) -> None:
            super().__init__()
            self.keys: Any = torch.zeros(shape, dtype=model.dtype, device=model.device)
            self.values: Any = torch.zeros(shape, dtype=model.dtype, device=model.device)
            self.is_initialized = True

        def lazy_initialization(
            self, key_states: torch.Tensor, value_states: torch.Tensor | None = None
        ) -> None:
            """Does nothing: the layer is allocated in the constructor."""

        def update(
            self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
        ) -> tuple[Any, Any]:
            """Writes new keys and values at the common column, and returns all that the layer holds."""
            self.keys.index_copy_(2, column, key_states)
            self.values.index_copy_(2, column, value_states)
            return self.keys, self.values

        def get_mask_sizes(self, query_length: object) -> tuple[int, int]:
            """Returns the number of columns under a mask, and the first column."""
            return length, 0

        def get_seq_length(self) -> int:
            """Returns 0: every step is given its positions, so that none follows from the length."""
            return 0

        def get_max_length(self) -> int:
            """Returns the columns of the ring."""
            return length

        def get_max_cache_shape(self) -> int:
            """The name of older versions."""
            return length

    config = model.config.get_text_config()
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = (rows, config.num_key_value_heads, length, head)
    return Cache(layers=[RingLayer(shape) for _ in range(config.num_hidden_layers)]), column


def rows_that_fit(model: PreTrainedModel, length: int) -> int:
    """Rows whose keys and values take up to a third of the GPU's free memory (attention wants as much again);
    without a GPU as many as are asked for.
    """
    import torch

    if model.device.type != "cuda":
        return 1 << 30
    config = model.config.get_text_config()
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    row = (
        2
        * config.num_hidden_layers
        * config.num_key_value_heads
        * head
        * length
        * model.dtype.itemsize
    )
    return max(4, int(torch.cuda.mem_get_info(model.device)[0] / 3 / row))
