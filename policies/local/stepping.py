"""Steps of a causal model, a token per row: growing cache on a CPU, static cache and a CUDA graph
on a GPU.

Plain `generate` is bound by the host (62 ms per token on an H200 at any batch size); a replayed
graph is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, StaticCache

_WARM_UP_STEPS = 2


class CacheKind(StrEnum):
    """How the keys and values of earlier tokens are kept while a model decodes."""

    AUTO = "auto"
    """Static on a GPU for models with full attention only, growing otherwise."""
    GROWING = "growing"
    STATIC = "static"


class Stepper(Protocol):
    """Runs a model over a batch of rows, a token per row and step."""

    shrinks: bool
    """Whether rows that have ended can be dropped on the way."""

    def prefill(self) -> torch.Tensor:
        """Reads the prompts. Returns the logits of each row's next token, of shape (rows, vocabulary)."""

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Reads a token per row, shape (rows,). Returns the logits of each row's next token."""

    def keep(self, rows: torch.Tensor) -> None:
        """Goes on with these rows alone, given as indices into the present ones."""


def make_stepper(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], pad: int, room: int, kind: CacheKind
) -> Stepper:
    """`room`: the most tokens that will be drawn for a row."""
    device = model.device
    if kind is CacheKind.GROWING or (kind is CacheKind.AUTO and device.type != "cuda"):
        return _Growing(model, prompts, pad)
    cache = _static_cache(model, max(map(len, prompts)) + room)
    return _Growing(model, prompts, pad) if cache is None else _Static(model, prompts, pad, cache)


def _static_cache(model: PreTrainedModel, length: int) -> Any:
    """Makes a static cache; None if a layer has other than full attention, for which the mask
    built here is wrong.
    """
    from transformers import StaticCache
    from transformers.cache_utils import StaticLayer

    cache = StaticCache(config=model.config, max_cache_len=length)
    plain = all(
        type(layer) is StaticLayer and hasattr(layer, "cumulative_length") for layer in cache.layers
    )
    return cache if plain else None


def left_padded(
    prompts: Sequence[Sequence[int]], pad: int, device: torch.device
) -> tuple[torch.Tensor, ...]:
    """Ids, mask and positions, each (rows, longest prompt)."""
    import torch

    width = max(map(len, prompts))
    ids = torch.tensor(
        [[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=device
    )
    mask = torch.tensor(
        [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device
    )
    return ids, mask, (mask.cumsum(dim=-1) - 1).clamp_(min=0)


class _Growing:
    shrinks = True

    def __init__(self, model: PreTrainedModel, prompts: Sequence[Sequence[int]], pad: int) -> None:
        from transformers import DynamicCache

        self._model = model
        self._ids, self._mask, self._positions = left_padded(prompts, pad, model.device)
        self._cache = DynamicCache(config=model.config)

    def prefill(self) -> torch.Tensor:
        """Reads all prompts, and returns the logits of each row's next token."""
        logits = self._forward(self._ids, self._positions)
        self._positions = self._positions[:, -1:]
        return logits

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Reads a token per row, and returns the logits of the next token."""
        import torch

        self._positions = self._positions + 1
        self._mask = torch.cat([self._mask, self._mask.new_ones((len(tokens), 1))], dim=-1)
        return self._forward(tokens[:, None], self._positions)

    def keep(self, rows: torch.Tensor) -> None:
        """Goes on with the named rows alone."""
        self._cache.batch_select_indices(rows)
        self._mask, self._positions = self._mask[rows], self._positions[rows]

    def _forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]


class _Static:
    """Fixed shapes: on a GPU the step is captured once and replayed."""

    shrinks = False

    def __init__(
        self, model: PreTrainedModel, prompts: Sequence[Sequence[int]], pad: int, cache: StaticCache
    ) -> None:
        import torch

        self._model, self._cache = model, cache
        self._prompt, self._mask, self._prompt_positions = left_padded(prompts, pad, model.device)
        rows, self._width = self._prompt.shape
        lowest = torch.finfo(model.dtype).min
        self._layers: list[Any] = list(cache.layers)
        length = self._layers[0].max_cache_len
        self._hidden = torch.full(
            (rows, 1, 1, length), lowest, dtype=model.dtype, device=model.device
        )
        self._hidden[:, 0, 0, : self._width].masked_fill_(self._mask.bool(), 0.0)
        self._ids = torch.zeros((rows, 1), dtype=torch.long, device=model.device)
        self._positions = self._prompt_positions[:, -1:].clone()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._logits: torch.Tensor | None = None

    def prefill(self) -> torch.Tensor:
        """Reads all prompts, and returns the logits of each row's next token."""
        return self._model(
            input_ids=self._prompt,
            attention_mask=self._mask,
            position_ids=self._prompt_positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Reads a token per row, and returns the logits of the next token, from a captured graph
        on a GPU.
        """
        self._ids.copy_(tokens[:, None])
        self._positions.add_(1)
        # The next column becomes visible: 0 is added to its scores instead of the lowest number.
        self._hidden[..., self._width] = 0.0
        self._width += 1
        if self._model.device.type != "cuda":
            return self._forward()
        if self._graph is None:
            self._capture()
        assert self._graph is not None
        assert self._logits is not None
        self._graph.replay()
        return self._logits

    def keep(self, rows: torch.Tensor) -> None:
        """Raises TypeError: a static cache keeps all its rows."""
        raise TypeError("a static cache keeps all its rows")

    def _forward(self) -> torch.Tensor:
        return self._model(
            input_ids=self._ids,
            attention_mask=self._hidden,
            position_ids=self._positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]

    def _capture(self) -> None:
        """Captures a step as a CUDA graph. Warm-up steps write where the first replay writes
        again; lengths are restored.
        """
        import torch

        lengths = [layer.cumulative_length.clone() for layer in self._layers]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP_STEPS):
                self._forward()
                for layer, length in zip(self._layers, lengths, strict=True):
                    layer.cumulative_length.copy_(length)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        # A judge or another policy may ask for memory in a thread of its own meanwhile: only this thread's calls are
        # held to what a capture allows.
        # A stream of its own: torch keeps one for all captures, of the GPU that captured first.
        with torch.cuda.graph(
            self._graph, stream=torch.cuda.Stream(), capture_error_mode="thread_local"
        ):
            self._logits = self._forward()
