"""Continuous batch: rows of many conversations enter and leave a running batch.

Keys and values lie in a ring of columns. In each step every row writes at the same column, the
common column; keys
carry their positions, so the order of columns does not matter. The columns of a row are a
contiguous run (modulo the
ring's length) that ends at the common column. On a GPU attention reads only that run
(continuous_batch_attention);
elsewhere a mask selects it. A finished row frees its slot for another request, so the batch is
never mostly padding.

Example with a ring of 8 columns and two slots. Slot 0 entered with 3 prompt tokens, slot 1 later
with 2:

    column      0  1  2  3  4  5  6  7
    slot 0      p  p  p  a  a  a  .  .       p: prompt, a: answer
    slot 1      .  .  .  p  p  a  .  .
    next step writes column 6 of both rows

On a GPU a step, including sampling, is one CUDA graph.
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
    from transformers import PreTrainedModel

log = logging.getLogger(__name__)

CPU_STEPS_BETWEEN_LOOKS = 8
"""Decoding steps on a CPU between two checks for ended rows."""
GPU_STEPS_BETWEEN_LOOKS = 16
"""Decoding steps on a GPU between two checks for ended rows; a check waits for the GPU."""
PREFILL_TOKENS = 65_536
"""Padded prompt tokens read at once."""
_WARM_UP = 2
_NUMBERS = 6
"""Number of values a row sets beside its random draws: see `_set`."""


def can_batch_sampling(sampling: Sampling) -> bool:
    """Whether the batch can sample so: the model's own distribution at any temperature, or greedily, without stop
    strings and without a thinking budget.
    """
    plain = sampling.exact or sampling.temperature == 0.0
    whole = (
        sampling.top_p == 1.0
        and sampling.top_k is None
        and sampling.min_p == 0.0
        and sampling.repetition_penalty == 1.0
    )
    return plain and whole and not sampling.stop and sampling.thinking_tokens is None


def can_batch_model(model: PreTrainedModel) -> bool:
    """Whether every layer of a model has plain full attention, which a row's window describes."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or {"full_attention"})
    return kinds == {"full_attention"} and hasattr(config, "num_key_value_heads")


class ContinuousBatch:
    """`places` rows of up to `length` tokens, prompt and answer together, `room` of them drawn.

    The model's weights may change in place between steps.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        capacity: int,
        length: int,
        room: int,
        ends: frozenset[int],
        graph: bool | None = None,
        windows: bool | None = None,
    ) -> None:
        """Allocates the batch.

        `graph`: replay steps as a CUDA graph. `windows`: attention reads windows instead of a
        mask. None: on a GPU only
        (windows: if Triton is installed).
        """
        import torch

        self._model, self.capacity, self.length, self.room = model, capacity, length, room
        self._device = device = model.device
        self._rows: list[SequenceInDecoding | None] = [None] * capacity
        self._cache, self._column = rotating_cache(model, capacity, length)
        self._lowest = torch.finfo(model.dtype).min
        self._attention = _window_attention(model, windows)
        self._windows = torch.ones((capacity, 1, 1, 2), dtype=torch.int32, device=device)
        width = length if self._attention is None else 0
        self._mask = torch.full(
            (capacity, 1, 1, width), self._lowest, dtype=model.dtype, device=device
        )
        self._ids = torch.zeros((capacity, 1), dtype=torch.long, device=device)
        self._positions = torch.zeros((capacity, 1), dtype=torch.long, device=device)
        self._step = torch.zeros(capacity, dtype=torch.long, device=device)
        self._limit = torch.zeros(capacity, dtype=torch.long, device=device)
        self._live = torch.zeros(capacity, dtype=torch.bool, device=device)
        self._uniform = torch.zeros((capacity, room), dtype=torch.float64, device=device)
        self._temperature = torch.ones((capacity, 1), device=device)
        self._greedy = torch.zeros(capacity, dtype=torch.bool, device=device)
        self._tokens = torch.zeros((capacity, room), dtype=torch.long, device=device)
        self._logps = torch.zeros((capacity, room), device=device)
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
        """Places a row has, ended or not."""
        return self.capacity - self.free

    def takes(self, row: SequenceInDecoding) -> bool:
        """Whether a row fits: prompt and answer into `length` columns, the answer into `room` drawn tokens."""
        return len(row.prompt) + row.limit <= self.length and row.limit <= self.room

    # -------------------------------------------------------------- rows in
    def admit(self, rows: Sequence[SequenceInDecoding]) -> None:
        """Reads their prompts, equal ones once. There must be a free place for each."""
        import torch

        free = [slot for slot, row in enumerate(self._rows) if row is None][: len(rows)]
        for slot, row in zip(free, rows, strict=True):
            self._rows[slot] = row
        with torch.inference_mode():
            self._set(free, rows)
            self._read(free, rows)

    def _set(self, slots: Sequence[int], rows: Sequence[SequenceInDecoding]) -> None:
        """Copies the state of new rows to the device in one transfer, as float64, which holds all
        of these numbers exactly.
        """
        import torch

        numbers = [
            (slot, row.prompt[-1], len(row.prompt) - 1, row.limit, row.sampling.temperature or 1.0,
            row.sampling.temperature == 0.0)
            for slot, row in zip(slots, rows, strict=True)
        ]  # fmt: skip
        packed = torch.zeros(
            (len(rows), _NUMBERS + self.room),
            dtype=torch.float64,
            pin_memory=self._device.type == "cuda",
        )
        packed[:, :_NUMBERS] = torch.tensor(numbers, dtype=torch.float64)
        for line, row in zip(packed, rows, strict=True):
            generator = torch.Generator().manual_seed(row.seed)
            torch.rand(
                row.limit,
                generator=generator,
                dtype=torch.float64,
                out=line[_NUMBERS : _NUMBERS + row.limit],
            )
        on_device = packed.to(self._device, non_blocking=True)
        whole = on_device[:, : _NUMBERS - 2].long()
        at = whole[:, 0]
        self._uniform[at] = on_device[:, _NUMBERS:]
        if self._attention is None:
            self._mask[at] = self._lowest
        self._ids[at] = whole[:, 1:2]
        self._positions[at] = whole[:, 2:3]
        self._limit[at] = whole[:, 3]
        self._temperature[at] = on_device[:, 4:5].float()
        self._greedy[at] = on_device[:, 5].bool()
        self._step[at] = 0
        self._live[at] = True

    def _read(self, slots: Sequence[int], rows: Sequence[SequenceInDecoding]) -> None:
        """Prefills all but the last token of each prompt; the last token is the input of the
        first step.
        """
        # Samples of one prompt share its prefill.
        unique: dict[tuple[int, ...], list[int]] = {}
        for slot, row in zip(slots, rows, strict=True):
            if len(row.prompt) > 1:
                unique.setdefault(tuple(row.prompt[:-1]), []).append(slot)
        part: list[tuple[int, ...]] = []
        for prompt in sorted(unique, key=len):
            if part and (len(part) + 1) * len(prompt) > PREFILL_TOKENS:
                self._prefill(part, unique)
                part = []
            part.append(prompt)
        if part:
            self._prefill(part, unique)

    def _prefill(
        self, prompts: list[tuple[int, ...]], slots_of_prompt: dict[tuple[int, ...], list[int]]
    ) -> None:
        import torch
        from transformers import DynamicCache

        from kernelwright.policies.local.stepping import left_padded

        ids, mask, positions = left_padded(prompts, 0, self._device)
        targets = [
            (slot, number)
            for number, prompt in enumerate(prompts)
            for slot in slots_of_prompt[prompt]
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
        # The prompt ends just before the common column, modulo the ring's length.
        columns = (self._column - width + torch.arange(width, device=self._device)) % self.length
        for ring_layer, layer in zip(self._cache.layers, read.layers, strict=True):
            for target, states in (
                (ring_layer.keys, layer.keys),
                (ring_layer.values, layer.values),
            ):
                heads = torch.arange(target.shape[1], device=self._device)
                target[at[:, None, None], heads[None, :, None], columns[None, None, :]] = states[
                    source
                ]
        if self._attention is None:
            shown = torch.where(mask[source].bool(), 0.0, self._lowest).to(self._mask.dtype)
            self._mask[at[:, None], 0, 0, columns[None, :]] = shown

    # -------------------------------------------------------------- steps
    def launch(self) -> None:
        """Starts a burst of steps for all rows, asynchronously on a GPU. `ended` collects the
        finished rows.
        """
        import torch

        on_gpu = self._device.type == "cuda"
        steps = GPU_STEPS_BETWEEN_LOOKS if on_gpu else CPU_STEPS_BETWEEN_LOOKS
        with torch.inference_mode(), torch.cuda.device(self._device) if on_gpu else nullcontext():
            for _ in range(steps):
                self._step_once()
        self.steps += steps

    def _step_once(self) -> None:
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
        visible = self._mask if self._attention is None else self._windows
        if self._attention is None:
            visible.index_fill_(3, self._column, 0.0)
        else:
            visible[:, 0, 0, 0].copy_(self._column)
            visible[:, 0, 0, 1].copy_(self._positions[:, 0] * self._live + 1)
        with nullcontext() if self._attention is None else self._attention(self._model):
            return self._model(
                input_ids=self._ids, attention_mask=visible, position_ids=self._positions, past_key_values=self._cache,
                use_cache=True, logits_to_keep=1
            ).logits[:, -1]  # fmt: skip

    def _compute(self) -> None:
        """Computes one token for every slot, including empty ones, in place, so that the step can
        be replayed.
        """
        import torch

        logits = self._logits()
        logprobs = torch.log_softmax(logits.float() / self._temperature, dim=-1)
        cumulative = logprobs.double().exp().cumsum(dim=-1)
        # Inverse of the cumulative distribution; the total is not exactly 1.
        aim = self._uniform.gather(1, self._step[:, None]) * cumulative[:, -1:]
        drawn = (
            torch.searchsorted(cumulative, aim, right=True)
            .squeeze(-1)
            .clamp_(max=logits.shape[-1] - 1)
        )
        tokens = torch.where(self._greedy, logprobs.argmax(dim=-1), drawn)
        token_logprobs = logprobs.gather(-1, tokens[:, None])
        column = self._step[:, None]
        self._tokens.scatter_(
            1,
            column,
            torch.where(self._live[:, None], tokens[:, None], self._tokens.gather(1, column)),
        )
        self._logps.scatter_(
            1,
            column,
            torch.where(self._live[:, None], token_logprobs, self._logps.gather(1, column)),
        )
        # A row ends at an end token or at its limit; its position then stays.
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
        saved = [tensor.clone() for tensor in state]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._compute()
                for tensor, was in zip(state, saved, strict=True):
                    tensor.copy_(was)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
            self._compute()
        for tensor, was in zip(state, saved, strict=True):
            tensor.copy_(was)
        self._graph = graph

    def ended(self) -> list[SequenceInDecoding]:
        """Waits for the launched steps, returns the rows that have ended, and frees their places."""
        import torch

        with torch.inference_mode():
            live, step = torch.stack((self._live.long(), self._step)).tolist()
            slots = [
                slot for slot, row in enumerate(self._rows) if row is not None and not live[slot]
            ]
            if not slots:
                return []
            counts = [step[slot] + 1 for slot in slots]
            at, longest = torch.tensor(slots, device=self._device), max(counts)
            drawn = torch.stack(
                (self._tokens[at, :longest].double(), self._logps[at, :longest].double())
            )
            tokens, logps = drawn[0].long().tolist(), drawn[1].tolist()
        ended_rows = []
        for number, slot in enumerate(slots):
            row = self._rows[slot]
            assert row is not None
            self._rows[slot] = None
            row.token_ids, row.logprobs = (
                tokens[number][: counts[number]],
                logps[number][: counts[number]],
            )
            ended_rows.append(row)
        return ended_rows


def _window_attention(
    model: PreTrainedModel, windows: bool | None
) -> Callable[[Any], AbstractContextManager[None]] | None:
    """None: the model's own, with a mask."""
    if windows is False or (windows is None and model.device.type != "cuda"):
        return None
    try:
        from kernelwright.policies.local.continuous_batch_attention import (
            attends_windows,
            windows_for_masks,
        )
    except ImportError:  # no Triton on this system
        return None
    return windows_for_masks if attends_windows(model) else None
