"""Rows for the trainer, and the batches they make.

A batch may be split in any way: the sum of its parts is the same loss.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

    from kernelwright.rl.log.dataset import Sample


class ScoredCompletion(NamedTuple):
    """One completion with its prompt, its tokens, their log-probs under the policy that sampled them, and its
    advantage.
    """

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    logps: Sequence[float]
    """One for each completion token, of the policy that drew it."""
    advantage: float | Sequence[float]
    """One, or one for each completion token."""
    mask: Sequence[int] | None = None
    """1 where the policy drew the token, 0 where the environment wrote it; None: it drew them all."""
    figures: dict[str, float] | None = None
    """Figures that are averaged and logged beside the loss: the reward, its parts, the share of correct answers ..."""

    @property
    def trained_tokens(self) -> int:
        """Tokens of the completion that the loss counts: all of them, or those that the mask keeps."""
        return len(self.completion_ids) if self.mask is None else sum(self.mask)


EMPTY_COMPLETION = ScoredCompletion(
    prompt_ids=(0,), completion_ids=(0, 0), logps=(0.0, 0.0), advantage=0.0, mask=(0, 0)
)
"""Adds nothing to any loss: for a part of a batch that would have no row."""


def row_of(sample: Sample) -> ScoredCompletion:
    """Makes the row that the trainer reads of a sample."""
    figures = {
        "reward": sample.reward,
        "return": sample.value,
        "completion_length": float(len(sample.completion_ids)),
    }
    figures |= {f"reward/{name}": value for name, value in sample.parts.items()}
    figures |= _rates(sample)
    return ScoredCompletion(
        sample.prompt_ids, sample.completion_ids, sample.logps, sample.advantage, figures=figures
    )


def _rates(sample: Sample) -> dict[str, float]:
    """Returns the figures of the step's own rows: a round that is sampled for the step has figures of all its turns,
    and those win.
    """
    if sample.depth:
        return {"repair_rate": float(sample.correct)}
    return {"pass_at_1": float(sample.correct), "compile_rate": float(sample.compiled)}


def in_order(rows: Iterable[ScoredCompletion]) -> list[ScoredCompletion]:
    """Orders samples by what they hold: the same samples give the same order, whichever thread was first."""
    return sorted(
        rows, key=lambda row: (tuple(row.prompt_ids), tuple(row.completion_ids), tuple(row.logps))
    )


class LogBatches:
    """Batches from a fixed log: every row once an epoch, in an order that seed and epoch decide.

    A function of the number alone, so a resumed run sees the same.
    """

    def __init__(self, rows: Sequence[ScoredCompletion], rows_a_step: int, seed: int) -> None:
        self._rows, self._a_step, self._seed = list(rows), max(1, min(rows_a_step, len(rows))), seed

    @property
    def steps_an_epoch(self) -> int:
        """Optimiser steps that show every row once, rounded up."""
        return -(-len(self._rows) // self._a_step)

    def __call__(self, number: int) -> list[ScoredCompletion]:
        """The rows of step `number`, counted from 0; each epoch has an order of its own, drawn from the seed."""
        epoch, place = divmod(number, self.steps_an_epoch)
        order = list(range(len(self._rows)))
        random.Random(f"{self._seed}/{epoch}").shuffle(order)
        # Spread evenly: the last batch of an epoch is not a stump that weighs as much as a whole one.
        start, end = (len(order) * at // self.steps_an_epoch for at in (place, place + 1))
        return [self._rows[index] for index in order[start:end]]


class MicroBatch(NamedTuple):
    """The rows of one forward and backward pass."""

    rows: list[ScoredCompletion]
    weight: float
    """The weight of its loss, where the loss is a mean over rows or over the part's own tokens."""


def split_into_micro_batches(
    rows: Sequence[ScoredCompletion], count: int, loss_type: str, rank: int = 0, world: int = 1
) -> list[MicroBatch]:
    """`count` parts of like lengths for one of `world` processes, weighted so that the way of splitting does not
    matter.

    Each part has as many rows in every process, empty ones where they do not come out even: trl gathers a figure a row,
    and NCCL waits for ever where one process brings more of them than another.
    """
    missing = -len(rows) % world
    ordered = sorted(
        [EMPTY_COMPLETION] * missing + list(rows),
        key=lambda row: len(row.prompt_ids) + len(row.completion_ids),
    )
    ordered = ordered[rank::world]
    edges = [len(ordered) * step // count for step in range(count + 1)]
    chunks = [ordered[start:end] for start, end in itertools.pairwise(edges)]
    return [
        MicroBatch(chunk or [EMPTY_COMPLETION], _weight(chunk, rows, count * world, loss_type))
        for chunk in chunks
    ]


def _weight(
    chunk: Sequence[ScoredCompletion], rows: Sequence[ScoredCompletion], parts: int, loss_type: str
) -> float:
    if not chunk:
        return 0.0
    if loss_type in ("dapo", "cispo", "vespo"):
        return 1.0  # trl divides these by the tokens of the whole batch itself
    if loss_type == "bnpo":
        total = sum(row.trained_tokens for row in rows)
        return parts * sum(row.trained_tokens for row in chunk) / max(total, 1)
    return parts * len(chunk) / len(rows)


def tensors(rows: Sequence[ScoredCompletion], pad: int, device: Any) -> dict[str, torch.Tensor]:
    """Returns tensors under trl's names: prompts padded on the left, completions on the right. Shape:
    (rows, longest).
    """
    import torch

    longest = max(len(row.completion_ids) for row in rows)

    def right(values: list[list[Any]], filler: Any, kind: torch.dtype) -> torch.Tensor:
        return torch.tensor(
            [list(v) + [filler] * (longest - len(v)) for v in values], dtype=kind, device=device
        )

    width = max(len(row.prompt_ids) for row in rows)
    prompts = [[pad] * (width - len(row.prompt_ids)) + list(row.prompt_ids) for row in rows]
    shown = [[0] * (width - len(row.prompt_ids)) + [1] * len(row.prompt_ids) for row in rows]
    ones = [[1] * len(row.completion_ids) for row in rows]
    logps = right([list(row.logps) for row in rows], 0.0, torch.float32)
    return {
        "prompt_ids": torch.tensor(prompts, device=device),
        "prompt_mask": torch.tensor(shown, device=device),
        "completion_ids": right([list(row.completion_ids) for row in rows], pad, torch.long),
        "completion_mask": right(ones, 0, torch.long),
        "tool_mask": right(
            [list(row.mask or one) for row, one in zip(rows, ones, strict=True)], 0, torch.long
        ),
        "old_per_token_logps": logps,
        "sampling_per_token_logps": logps,
        "advantages": _advantages(rows, right),
    }


def _advantages(rows: Sequence[ScoredCompletion], right: Any) -> torch.Tensor:
    """(rows,), or (rows, longest) where one has an advantage a token."""
    import torch

    if all(isinstance(row.advantage, float | int) for row in rows):
        values: list[Any] = [row.advantage for row in rows]
        filled: torch.Tensor = right([[value] for value in values], 0.0, torch.float32)
        return filled[:, 0].contiguous()
    spread = [
        [row.advantage] * len(row.completion_ids)
        if isinstance(row.advantage, float | int)
        else list(row.advantage)
        for row in rows
    ]
    found: torch.Tensor = right(spread, 0.0, torch.float32)
    return found
