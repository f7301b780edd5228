"""Many conversations in one running batch: rows come and go, the batch stays.

On a GPU a step, sampling among it, is one CUDA graph.

Every row writes its next token at one common column of a ring; keys carry their own positions, so the order of columns
does not matter. A row's own columns are one run that ends at the common one: on a GPU attention reads that run alone
(ring_attention), elsewhere a mask says which it is. A row that ends leaves its place to another: the batch is never
mostly padding, as it is where rows that have ended wait for the longest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from kernelwright.policies.base import Sampling
from kernelwright.policies.local.continuous_batch_cache import rotating_cache
from kernelwright.policies.local.decoding import SequenceInDecoding

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

CPU_STEPS_BETWEEN_LOOKS = 8
"""Steps between two looks at what has ended."""
GPU_STEPS_BETWEEN_LOOKS = 16
"""Decoding steps on a GPU between two checks for ended rows; a check waits for the GPU."""
PREFILL_TOKENS = 65_536
"""Padded prompt tokens that are read at once."""
_WARM_UP = 2
_NUMBERS = 6
"""Number of values that a row sets beside its random draws: see `_set`."""


def can_batch_sampling(sampling: Sampling) -> bool:
    """Whether the batch can sample so: the model's own distribution at any temperature, or greedily, without stop
    strings.
    """
    plain = sampling.exact or sampling.temperature == 0.0
    whole = (
        sampling.top_p == 1.0
        and sampling.top_k is None
        and sampling.min_p == 0.0
        and sampling.repetition_penalty == 1.0
    )
    return plain and whole and not sampling.stop


def can_batch_model(model: Any) -> bool:
    """Whether every layer of a model has plain full attention, which a row's window describes."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or {"full_attention"})
    return kinds == {"full_attention"} and hasattr(config, "num_key_value_heads")


def rows_that_fit(model: Any, length: int) -> int:
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


class ContinuousBatch:
    """`places` rows of up to `length` tokens, prompt and answer together, `room` of them drawn.

    The model's weights may change in place between steps.
    """

    def __init__(
        self,
        model: Any,
        places: int,
        length: int,
        room: int,
        ends: frozenset[int],
        graph: bool | None = None,
        windows: bool | None = None,
    ) -> None:
        """`graph`: replay steps as a CUDA graph; `windows`: attention reads windows, not a mask.

        None: on a GPU (windows: where Triton is there).
        """
        import torch

        self._model, self.places, self.length, self.room = model, places, length, room
        self._device = device = model.device
        self._rows: list[SequenceInDecoding | None] = [None] * places
        self._cache, self._column = rotating_cache(model, places, length)
        self._lowest = torch.finfo(model.dtype).min
        self._attention = _window_attention(model, windows)
        self._windows = torch.ones((places, 1, 1, 2), dtype=torch.int32, device=device)
        width = length if self._attention is None else 0
        self._mask = torch.full(
            (places, 1, 1, width), self._lowest, dtype=model.dtype, device=device
        )
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
        """Places that no row has."""
        return sum(row is None for row in self._rows)

    @property
    def busy(self) -> int:
        """Places that a row has, ended or not."""
        return self.places - self.free

    def takes(self, row: SequenceInDecoding) -> bool:
        """Whether a row fits: prompt and answer into `length` columns, the answer into `room` drawn tokens."""
        return len(row.prompt) + row.limit <= self.length and row.limit <= self.room

    # -------------------------------------------------------------- rows in
    def admit(self, rows: Sequence[SequenceInDecoding]) -> None:
        """Reads their prompts, equal ones once. There must be a free place for each."""
        import torch

        free = [place for place, row in enumerate(self._rows) if row is None][: len(rows)]
        for place, row in zip(free, rows, strict=True):
            self._rows[place] = row
        with torch.inference_mode():
            self._set(free, rows)
            self._read(free, rows)

    def _set(self, places: Sequence[int], rows: Sequence[SequenceInDecoding]) -> None:
        """Moves all that a row brings in one transfer, as float64: that holds every one of these numbers."""
        import torch

        numbers = [
            (place, row.prompt[-1], len(row.prompt) - 1, row.limit, row.sampling.temperature or 1.0,
            row.sampling.temperature == 0.0)
            for place, row in zip(places, rows, strict=True)
        ]  # fmt: skip
        packed = torch.zeros(
            (len(rows), _NUMBERS + self.room),
            dtype=torch.float64,
            pin_memory=self._device.type == "cuda",
        )
        packed[:, :_NUMBERS] = torch.tensor(numbers, dtype=torch.float64)
        for line, row in zip(packed, rows, strict=True):
            own = torch.Generator().manual_seed(row.seed)
            torch.rand(
                row.limit,
                generator=own,
                dtype=torch.float64,
                out=line[_NUMBERS : _NUMBERS + row.limit],
            )
        told = packed.to(self._device, non_blocking=True)
        whole = told[:, : _NUMBERS - 2].long()
        at = whole[:, 0]
        self._uniform[at] = told[:, _NUMBERS:]
        if self._attention is None:
            self._mask[at] = self._lowest
        self._ids[at] = whole[:, 1:2]
        self._positions[at] = whole[:, 2:3]
        self._limit[at] = whole[:, 3]
        self._temperature[at] = told[:, 4:5].float()
        self._greedy[at] = told[:, 5].bool()
        self._step[at] = 0
        self._live[at] = True

    def _read(self, places: Sequence[int], rows: Sequence[SequenceInDecoding]) -> None:
        """Reads all but the last token of each prompt; the last one is the first step's input."""
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

    def _prefill(
        self, prompts: list[tuple[int, ...]], places: dict[tuple[int, ...], list[int]]
    ) -> None:
        import torch
        from transformers import DynamicCache

        from kernelwright.policies.local.stepping import left_padded

        ids, mask, positions = left_padded(prompts, 0, self._device)
        targets = [
            (place, number) for number, prompt in enumerate(prompts) for place in places[prompt]
        ]
        at, source = torch.tensor(targets, device=self._device).unbind(1)
        read: Any = DynamicCache(config=self._model.config)
        self._model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=read,
            use_cache=True,
            logits_to_keep=1,
        )
        width = ids.shape[1]
        columns = (self._column - width + torch.arange(width, device=self._device)) % self.length
        for own, layer in zip(self._cache.layers, read.layers, strict=True):
            for target, taken in ((own.keys, layer.keys), (own.values, layer.values)):
                heads = torch.arange(target.shape[1], device=self._device)
                target[at[:, None, None], heads[None, :, None], columns[None, None, :]] = taken[
                    source
                ]
        if self._attention is None:
            shown = torch.where(mask[source].bool(), 0.0, self._lowest).to(self._mask.dtype)
            self._mask[at[:, None], 0, 0, columns[None, :]] = shown

    # -------------------------------------------------------------- steps
    def launch(self) -> None:
        """A burst of steps for all rows; on a GPU it goes on by itself. What has ended `ended` says."""
        import torch

        on_gpu = self._device.type == "cuda"
        steps = GPU_STEPS_BETWEEN_LOOKS if on_gpu else CPU_STEPS_BETWEEN_LOOKS
        with torch.inference_mode(), torch.cuda.device(self._device) if on_gpu else nullcontext():
            for _ in range(steps):
                self._one()
        self.steps += steps

    def _one(self) -> None:
        if not self._wants_graph:
            self._compute()
            return
        if self._graph is None:
            self._capture()
        self._graph.replay()

    def _logits(self) -> torch.Tensor:
        """Computes the logits of the next token, (places, words). A place without a row attends to the common column
        alone.
        """
        seen = self._mask if self._attention is None else self._windows
        if self._attention is None:
            seen.index_fill_(3, self._column, 0.0)
        else:
            seen[:, 0, 0, 0].copy_(self._column)
            seen[:, 0, 0, 1].copy_(self._positions[:, 0] * self._live + 1)
        with nullcontext() if self._attention is None else self._attention(self._model):
            return self._model(
                input_ids=self._ids, attention_mask=seen, position_ids=self._positions, past_key_values=self._cache,
                use_cache=True, logits_to_keep=1
            ).logits[:, -1]  # fmt: skip

    def _compute(self) -> None:
        """Computes one token for every place, those without a row included, in place everywhere, so that it can be
        replayed.
        """
        import torch

        logits = self._logits()
        logprobs = torch.log_softmax(logits.float() / self._temperature, dim=-1)
        cumulative = logprobs.double().exp().cumsum(dim=-1)
        aim = self._uniform.gather(1, self._step[:, None]) * cumulative[:, -1:]
        drawn = (
            torch.searchsorted(cumulative, aim, right=True)
            .squeeze(-1)
            .clamp_(max=logits.shape[-1] - 1)
        )
        tokens = torch.where(self._greedy, logprobs.argmax(dim=-1), drawn)
        taken = logprobs.gather(-1, tokens[:, None])
        place = self._step[:, None]
        self._tokens.scatter_(
            1,
            place,
            torch.where(self._live[:, None], tokens[:, None], self._tokens.gather(1, place)),
        )
        self._logps.scatter_(
            1, place, torch.where(self._live[:, None], taken, self._logps.gather(1, place))
        )
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
        with torch.cuda.graph(graph, stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
            self._compute()
        for tensor, was in zip(state, kept, strict=True):
            tensor.copy_(was)
        self._graph = graph

    def ended(self) -> list[SequenceInDecoding]:
        """Waits for the launched steps, returns the rows that have ended, and frees their places."""
        import torch

        with torch.inference_mode():
            live, step = torch.stack((self._live.long(), self._step)).tolist()
            places = [
                place for place, row in enumerate(self._rows) if row is not None and not live[place]
            ]
            if not places:
                return []
            counts = [step[place] + 1 for place in places]
            at, longest = torch.tensor(places, device=self._device), max(counts)
            drawn = torch.stack(
                (self._tokens[at, :longest].double(), self._logps[at, :longest].double())
            )
            tokens, logps = drawn[0].long().tolist(), drawn[1].tolist()
        found = []
        for number, place in enumerate(places):
            row = self._rows[place]
            assert row is not None
            self._rows[place] = None
            row.token_ids, row.logprobs = (
                tokens[number][: counts[number]],
                logps[number][: counts[number]],
            )
            found.append(row)
        return found


def _window_attention(
    model: Any, wanted: bool | None
) -> Callable[[Any], AbstractContextManager[None]] | None:
    """None: the model's own, with a mask."""
    if wanted is False or (wanted is None and model.device.type != "cuda"):
        return None
    try:
        from kernelwright.policies.local.continuous_batch_attention import (
            attends_windows,
            windows_for_masks,
        )
    except ImportError:  # no Triton on this system
        return None
    return windows_for_masks if attends_windows(model) else None
