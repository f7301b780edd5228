"""Many conversations in one running batch: rows come and go, the batch stays. On a GPU a step, sampling among it, is one CUDA graph.

Every row writes its next token at one common column of a ring; which columns are a row's own its mask says, and keys carry their own positions, so
the order of columns does not matter. A row that ends leaves its place to the next one at once: the batch is never mostly padding, as it is where
rows that have ended wait for the longest.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from policies.base import Sampling
from policies.decoding import Row

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

BURST = 8
"""Steps between two looks at what has ended: a look waits for the GPU."""
PREFILL_TOKENS = 65_536
"""Padded prompt tokens that are read at once."""
_WARM_UP = 2


def fits_the_ring(sampling: Sampling) -> bool:
    """Whether the ring can sample so: the model's own distribution at any temperature, or greedily, without stop strings."""
    plain = sampling.exact or sampling.temperature == 0.0
    whole = (
        sampling.top_p == 1.0
        and sampling.top_k is None
        and sampling.min_p == 0.0
        and sampling.repetition_penalty == 1.0
    )
    return plain and whole and not sampling.stop


def has_a_ring(model: Any) -> bool:
    """Plain full attention in every layer: what the ring's mask describes."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or {"full_attention"})
    return kinds == {"full_attention"} and hasattr(config, "num_key_value_heads")


def places_that_fit(model: Any, length: int) -> int:
    """Rows whose keys and values take up to a third of the GPU's free memory (attention wants as much again); without a GPU as many as are asked for."""
    import torch

    if model.device.type != "cuda":
        return 1 << 30
    config = model.config.get_text_config()
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    row = 2 * config.num_hidden_layers * config.num_key_value_heads * head * length * model.dtype.itemsize
    return max(4, int(torch.cuda.mem_get_info(model.device)[0] / 3 / row))


class Ring:
    """`places` rows of up to `length` tokens, prompt and answer together, `room` of them drawn. The model's weights may change in place between steps."""

    def __init__(
        self, model: Any, places: int, length: int, room: int, ends: frozenset[int], graph: bool | None = None
    ) -> None:
        """`graph`: replay steps as a CUDA graph; None: on a GPU."""
        import torch

        self._model, self.places, self.length, self.room = model, places, length, room
        self._device = device = model.device
        self._rows: list[Row | None] = [None] * places
        self._cache, self._column = _ring_cache(model, places, length)
        self._lowest = torch.finfo(model.dtype).min
        self._mask = torch.full((places, 1, 1, length), self._lowest, dtype=model.dtype, device=device)
        self._ids = torch.zeros((places, 1), dtype=torch.long, device=device)
        self._positions = torch.zeros((places, 1), dtype=torch.long, device=device)
        self._step = torch.zeros(places, dtype=torch.long, device=device)
        self._limit = torch.zeros(places, dtype=torch.long, device=device)
        self._live = torch.zeros(places, dtype=torch.bool, device=device)
        self._uniform = torch.zeros((places, room), dtype=torch.float64, device=device)
        self._temperature = torch.ones((places, 1), device=device)
        self._greedy = torch.zeros(places, dtype=torch.bool, device=device)
        self._tokens = torch.zeros((places, room), dtype=torch.long, device=device)
        self._logps = torch.zeros((places, room), device=device)
        self._ends = torch.tensor(sorted(ends) or [-1], device=device)
        self._wants_graph = device.type == "cuda" if graph is None else graph
        self._graph: Any = None
        self.steps = 0

    @property
    def free(self) -> int:
        return sum(row is None for row in self._rows)

    @property
    def busy(self) -> int:
        return self.places - self.free

    def takes(self, row: Row) -> bool:
        return len(row.prompt) + row.limit <= self.length and row.limit <= self.room

    # -------------------------------------------------------------- rows in
    def admit(self, rows: Sequence[Row]) -> None:
        """Reads their prompts, equal ones once. There must be a free place for each."""
        import torch

        free = [place for place, row in enumerate(self._rows) if row is None][: len(rows)]
        for place, row in zip(free, rows, strict=True):
            self._rows[place] = row
        with torch.inference_mode():
            self._set(free, rows)
            self._read(free, rows)

    def _set(self, places: Sequence[int], rows: Sequence[Row]) -> None:
        import torch

        def column(values: list[Any], kind: Any) -> torch.Tensor:
            return torch.tensor(values, dtype=kind, device=self._device)

        at = column(list(places), torch.long)
        draws = [
            torch.rand(row.limit, generator=torch.Generator().manual_seed(row.seed), dtype=torch.float64)
            for row in rows
        ]
        padded = torch.stack([torch.nn.functional.pad(draw, (0, self.room - len(draw))) for draw in draws])
        self._uniform[at] = padded.to(self._device)
        self._mask[at] = self._lowest
        self._ids[at] = column([[row.prompt[-1]] for row in rows], torch.long)
        self._positions[at] = column([[len(row.prompt) - 1] for row in rows], torch.long)
        self._step[at] = 0
        self._limit[at] = column([row.limit for row in rows], torch.long)
        self._temperature[at] = column([[row.sampling.temperature or 1.0] for row in rows], torch.float32)
        self._greedy[at] = column([row.sampling.temperature == 0.0 for row in rows], torch.bool)
        self._live[at] = True

    def _read(self, places: Sequence[int], rows: Sequence[Row]) -> None:
        """All but the last token of each prompt; the last one is the first step's input."""
        unique: dict[tuple[int, ...], list[int]] = {}
        for place, row in zip(places, rows, strict=True):
            if len(row.prompt) > 1:
                unique.setdefault(tuple(row.prompt[:-1]), []).append(place)
        part: list[tuple[int, ...]] = []
        for prompt in sorted(unique, key=len):
            if part and (len(part) + 1) * len(prompt) > PREFILL_TOKENS:
                self._prefill(part, unique)
                part = []
            part.append(prompt)
        if part:
            self._prefill(part, unique)

    def _prefill(self, prompts: list[tuple[int, ...]], places: dict[tuple[int, ...], list[int]]) -> None:
        import torch
        from transformers import DynamicCache

        from policies.stepping import left_padded

        ids, mask, positions = left_padded(prompts, 0, self._device)
        read: Any = DynamicCache(config=self._model.config)
        self._model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=read,
            use_cache=True,
            logits_to_keep=1,
        )
        targets = [place for prompt in prompts for place in places[prompt]]
        sources = [number for number, prompt in enumerate(prompts) for _ in places[prompt]]
        at, source = torch.tensor(targets, device=self._device), torch.tensor(sources, device=self._device)
        width = ids.shape[1]
        columns = (self._column - width + torch.arange(width, device=self._device)) % self.length
        for own, layer in zip(self._cache.layers, read.layers, strict=True):
            for target, taken in ((own.keys, layer.keys), (own.values, layer.values)):
                heads = torch.arange(target.shape[1], device=self._device)
                target[at[:, None, None], heads[None, :, None], columns[None, None, :]] = taken[source]
        shown = torch.where(mask[source].bool(), 0.0, self._lowest).to(self._mask.dtype)
        self._mask[at[:, None], 0, 0, columns[None, :]] = shown

    # -------------------------------------------------------------- steps
    def advance(self, steps: int = BURST) -> list[Row]:
        """Some steps for all rows; gives those that ended, filled, and frees their places."""
        import torch

        with torch.inference_mode():
            for _ in range(steps):
                self._one()
            self.steps += steps
            return self._ended()

    def _one(self) -> None:
        if not self._wants_graph:
            self._compute()
            return
        if self._graph is None:
            self._capture()
        self._graph.replay()

    def _compute(self) -> None:
        """One token for every place, those without a row among them. In place all over, so that it can be replayed."""
        import torch

        self._mask.index_fill_(3, self._column, 0.0)
        logits = self._model(
            input_ids=self._ids, attention_mask=self._mask, position_ids=self._positions, past_key_values=self._cache, use_cache=True, logits_to_keep=1
        ).logits[:, -1]  # fmt: skip
        logprobs = torch.log_softmax(logits.float() / self._temperature, dim=-1)
        cumulative = logprobs.double().exp().cumsum(dim=-1)
        aim = self._uniform.gather(1, self._step[:, None]) * cumulative[:, -1:]
        drawn = torch.searchsorted(cumulative, aim, right=True).squeeze(-1).clamp_(max=logits.shape[-1] - 1)
        tokens = torch.where(self._greedy, logprobs.argmax(dim=-1), drawn)
        taken = logprobs.gather(-1, tokens[:, None])
        place = self._step[:, None]
        self._tokens.scatter_(
            1, place, torch.where(self._live[:, None], tokens[:, None], self._tokens.gather(1, place))
        )
        self._logps.scatter_(1, place, torch.where(self._live[:, None], taken, self._logps.gather(1, place)))
        over = (tokens[:, None] == self._ends[None, :]).any(dim=1) | (self._step + 1 >= self._limit)
        live = self._live.long()
        self._ids.copy_(tokens[:, None])
        self._positions.add_(live[:, None])
        self._step.add_(live * (~over).long())
        self._live.logical_and_(~over)
        self._column.add_(1).remainder_(self.length)

    def _capture(self) -> None:
        """Warm-up steps are real steps that are taken back: all state but the cache is put as it was."""
        import torch

        state = (
            self._mask,
            self._ids,
            self._positions,
            self._step,
            self._live,
            self._tokens,
            self._logps,
            self._column,
        )
        kept = [tensor.clone() for tensor in state]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._compute()
                for tensor, was in zip(state, kept, strict=True):
                    tensor.copy_(was)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._compute()
        for tensor, was in zip(state, kept, strict=True):
            tensor.copy_(was)
        self._graph = graph

    def _ended(self) -> list[Row]:
        import torch

        live = self._live.tolist()
        places = [place for place, row in enumerate(self._rows) if row is not None and not live[place]]
        if not places:
            return []
        at = torch.tensor(places, device=self._device)
        counts = (self._step[at] + 1).tolist()
        longest = max(counts)
        tokens, logps = self._tokens[at, :longest].tolist(), self._logps[at, :longest].tolist()
        found = []
        for number, place in enumerate(places):
            row = self._rows[place]
            assert row is not None
            self._rows[place] = None
            row.token_ids, row.logprobs = tokens[number][: counts[number]], logps[number][: counts[number]]
            found.append(row)
        return found


def _ring_cache(model: Any, places: int, length: int) -> tuple[Any, torch.Tensor]:
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
            """Was done at once."""

        def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            self.keys.index_copy_(2, column, key_states)
            self.values.index_copy_(2, column, value_states)
            return self.keys, self.values

        def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
            return length, 0

        def get_seq_length(self) -> int:
            return 0

        def get_max_length(self) -> int:
            return length

        def get_max_cache_shape(self) -> int:
            """The name of older versions."""
            return length

    config = model.config.get_text_config()
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    shape = (places, config.num_key_value_heads, length, head)
    return Cache(layers=[RingLayer(shape) for _ in range(config.num_hidden_layers)]), column
