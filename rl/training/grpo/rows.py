"""Converts samples to rows of the trainer, and rows to batches.

A batch may be split in any way: the weighted losses of its parts add up to the same loss. Example:
five rows of 2, 4, 6, 8 and 10 tokens in two parts are [2, 4] with weight 0.8 and [6, 8, 10] with
weight 1.2, because the mean over both parts of a loss averaged over rows must be the mean over five
rows.

Prompts are padded on the left and completions on the right, so all completions begin in the same
column:

    prompt 5 6 7, completion 8 2                  prompt_ids      5 6 7   completion_ids   8 2 0
    prompt 9, completion 3 4 2, mask 1 0 1                        0 0 9                    3 4 2
                                                  completion_mask 1 1 0   tool_mask        1 1 0
                                                                  1 1 1                    1 0 1
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.policies.local.thinking_budget import forced_tokens
from kernelwright.rl.training.sft.thinking import answer_mask

if TYPE_CHECKING:
    import torch

    from kernelwright.rl.log.dataset import Sample

    PadRight = Callable[[Iterable[Sequence[float]], float, torch.dtype], torch.Tensor]


class ScoredCompletion(NamedTuple):
    """A completion with its prompt, its tokens, their log-probs under the sampling policy, and
    its advantage.
    """

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    logps: Sequence[float]
    """Log-prob of each completion token under the sampling policy."""
    advantage: float | Sequence[float]
    """Advantage of the whole completion, or of each completion token."""
    mask: Sequence[int] | None = None
    """1 for tokens of the policy, 0 for tokens of the environment; None: the policy drew all
    tokens.
    """
    figures: dict[str, float] | None = None
    """Figures averaged and logged beside the loss: the reward, its parts, the share of correct
    answers ...
    """

    @property
    def trained_tokens(self) -> int:
        """Number of completion tokens in the loss: all of them, or those selected by the mask."""
        return len(self.completion_ids) if self.mask is None else sum(self.mask)


EMPTY_COMPLETION = ScoredCompletion(
    prompt_ids=(0,), completion_ids=(0, 0), logps=(0.0, 0.0), advantage=0.0, mask=(0, 0)
)
"""A row without effect on any loss: fills a part of a batch without rows."""


def row_of(sample: Sample, tokenizer: Any = None) -> ScoredCompletion:
    """Returns the trainer's row for a sample.

    tokenizer: leaves thoughts out of the loss, up to `</think>`; None keeps them.
    """
    figures = {
        "reward": sample.reward,
        "return": sample.value,
        "completion_length": float(len(sample.completion_ids)),
    }
    figures |= {f"reward/{name}": value for name, value in sample.parts.items()}
    figures |= _rates(sample)
    return ScoredCompletion(
        sample.prompt_ids,
        sample.completion_ids,
        sample.logps,
        sample.advantage,
        mask=_mask(sample, tokenizer),
        figures=figures,
    )


def _mask(sample: Sample, tokenizer: Any) -> list[int] | None:
    """Returns 0 for tokens left out of the loss: those that ended a thought at its budget, and with
    a tokenizer the whole thought; None if all tokens are trained.
    """
    forced = forced_tokens(sample.logps, sample.thinking_tokens)
    if tokenizer is None and not forced:
        return None
    if tokenizer is None:
        mask = [1] * len(sample.completion_ids)
    else:
        mask = answer_mask(sample.completion_ids, tokenizer)
    for index in forced:
        mask[index] = 0
    return mask


def _rates(sample: Sample) -> dict[str, float]:
    """Returns the success rates of the step's rows. A round sampled for the step overrides them
    by the rates of all its turns.
    """
    if sample.depth:
        return {"repair_rate": float(sample.correct)}
    return {"pass_at_1": float(sample.correct), "compile_rate": float(sample.compiled)}


def in_order(rows: Iterable[ScoredCompletion]) -> list[ScoredCompletion]:
    """Sorts rows by their content, so equal rows have the same order whichever thread finished
    first.
    """
    return sorted(
        rows, key=lambda row: (tuple(row.prompt_ids), tuple(row.completion_ids), tuple(row.logps))
    )


class LogBatches:
    """Batches from a fixed log: every row once an epoch, in an order determined by seed and
    epoch.

    A function of the step alone, so a resumed run sees the same batches.
    """

    def __init__(self, rows: Sequence[ScoredCompletion], rows_a_step: int, seed: int) -> None:
        self._rows = list(rows)
        self._a_step = max(1, min(rows_a_step, len(rows)))
        self._seed = seed

    @property
    def steps_an_epoch(self) -> int:
        """Optimizer steps that show every row once, rounded up."""
        return -(-len(self._rows) // self._a_step)

    def __call__(self, number: int) -> list[ScoredCompletion]:
        """Returns the rows of step `number`, counted from 0; each epoch has its own order, drawn
        from the seed.
        """
        epoch, batch = divmod(number, self.steps_an_epoch)
        order = list(range(len(self._rows)))
        random.Random(f"{self._seed}/{epoch}").shuffle(order)
        # Evenly sized: a short last batch of an epoch would weigh as much as a full one.
        start = len(order) * batch // self.steps_an_epoch
        end = len(order) * (batch + 1) // self.steps_an_epoch
        return [self._rows[index] for index in order[start:end]]


class MicroBatch(NamedTuple):
    """The rows of one forward and backward pass."""

    rows: list[ScoredCompletion]
    weight: float
    """Weight of this part's loss, for losses averaged over rows or over the part's own tokens."""


def split_into_micro_batches(
    rows: Sequence[ScoredCompletion], count: int, loss_type: str, rank: int = 0, world: int = 1
) -> list[MicroBatch]:
    """Returns `count` parts of similar row lengths for one of `world` processes, weighted so that
    the split does not change the loss.

    Each part has the same number of rows in every process, filled with empty rows: trl gathers a
    figure for each row, and NCCL waits forever if processes bring different numbers of rows.
    """
    missing = -len(rows) % world
    ordered = sorted([EMPTY_COMPLETION] * missing + list(rows), key=_length)
    # Every `world`-th row of the sorted ones: all processes get rows of similar lengths.
    ordered = ordered[rank::world]
    edges = [len(ordered) * step // count for step in range(count + 1)]
    parts = []
    for start, end in itertools.pairwise(edges):
        chunk = ordered[start:end]
        weight = _weight(chunk, rows, count * world, loss_type)
        parts.append(MicroBatch(chunk or [EMPTY_COMPLETION], weight))
    return parts


def _length(row: ScoredCompletion) -> int:
    return len(row.prompt_ids) + len(row.completion_ids)


def _weight(
    chunk: Sequence[ScoredCompletion], rows: Sequence[ScoredCompletion], parts: int, loss_type: str
) -> float:
    """Returns the weight of a part's loss, so that the mean over parts is the loss of all rows."""
    if not chunk:
        return 0.0
    if loss_type in ("dapo", "cispo", "vespo"):
        # trl itself divides these losses by the tokens of the whole batch.
        return 1.0
    if loss_type == "bnpo":
        # A mean over the part's tokens becomes a share of all tokens.
        total = sum(row.trained_tokens for row in rows)
        return parts * sum(row.trained_tokens for row in chunk) / max(total, 1)
    # A mean over the part's rows becomes a share of all rows.
    return parts * len(chunk) / len(rows)


def tensors(
    rows: Sequence[ScoredCompletion], pad: int, device: str | torch.device
) -> dict[str, torch.Tensor]:
    """Returns tensors under trl's names, of shape (rows, longest): prompts padded on the left,
    completions on the right.
    """
    import torch

    longest = max(len(row.completion_ids) for row in rows)

    def right(values: Iterable[Sequence[float]], filler: float, dtype: torch.dtype) -> torch.Tensor:
        """Pads lists of numbers on the right to the longest completion."""
        padded = [[*row_values] + [filler] * (longest - len(row_values)) for row_values in values]
        return torch.tensor(padded, dtype=dtype, device=device)

    # Prompts end at the same column, where all completions begin.
    width = max(len(row.prompt_ids) for row in rows)
    prompts = [[pad] * (width - len(row.prompt_ids)) + list(row.prompt_ids) for row in rows]
    shown = [[0] * (width - len(row.prompt_ids)) + [1] * len(row.prompt_ids) for row in rows]
    ones = [[1] * len(row.completion_ids) for row in rows]
    masks = [row.mask or all_ones for row, all_ones in zip(rows, ones, strict=True)]
    logps = right([row.logps for row in rows], 0.0, torch.float32)
    return {
        "prompt_ids": torch.tensor(prompts, device=device),
        "prompt_mask": torch.tensor(shown, device=device),
        "completion_ids": right([row.completion_ids for row in rows], pad, torch.long),
        "completion_mask": right(ones, 0, torch.long),
        "tool_mask": right(masks, 0, torch.long),
        "old_per_token_logps": logps,
        "sampling_per_token_logps": logps,
        "advantages": _advantages(rows, right),
    }


def _advantages(rows: Sequence[ScoredCompletion], right: PadRight) -> torch.Tensor:
    """Returns advantages of shape (rows,), or (rows, longest) if a row has an advantage for each
    token.
    """
    import torch

    advantages = [row.advantage for row in rows]
    whole = [advantage for advantage in advantages if isinstance(advantage, float | int)]
    if len(whole) == len(rows):
        padded = right([[advantage] for advantage in whole], 0.0, torch.float32)
        return padded[:, 0].contiguous()
    by_token: list[Sequence[float]] = []
    for row in rows:
        if isinstance(row.advantage, float | int):
            by_token.append([row.advantage] * len(row.completion_ids))
        else:
            by_token.append(row.advantage)
    return right(by_token, 0.0, torch.float32)
