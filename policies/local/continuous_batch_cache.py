"""Key/value cache as a ring: every layer writes at a common column, and returns all columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def rotating_cache(model: Any, rows: int, length: int) -> tuple[Any, torch.Tensor]:
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

        def lazy_initialization(self, key_states: Any, value_states: Any = None) -> None:
            """Does nothing: the layer is allocated in the constructor."""

        def update(
            self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any
        ) -> tuple[Any, Any]:
            """Writes new keys and values at the common column, and returns all that the layer holds."""
            self.keys.index_copy_(2, column, key_states)
            self.values.index_copy_(2, column, value_states)
            return self.keys, self.values

        def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
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
