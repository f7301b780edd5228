"""Batches of few distinct shapes: rows of like length together, as many as fill a budget of tokens, padded on the
right.

Padding comes after a row's end, so causal attention never sees it and no mask is needed: the fastest attention kernel
is used, and each shape is compiled once. Packing would need a block-diagonal mask, which costs more than the few per
cent of padding that are left here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.rl.training.sft.encoding import EncodedRows

if TYPE_CHECKING:
    import torch

MAX_SHAPES = 6
WIDTH_MULTIPLE = 32
"""Widths are multiples of it."""
IGNORED_LABEL = -100


def widths_of(
    lengths: np.ndarray, shapes: int = MAX_SHAPES, step: int = WIDTH_MULTIPLE
) -> list[int]:
    """The widths, at most `shapes`, that leave the least padding (exact, by dynamic programming over multiples of
    `step`).
    """
    rounded = -(-lengths // step) * step
    edges, counts = np.unique(rounded, return_counts=True)
    n = len(edges)
    below = np.concatenate([[0], np.cumsum(counts)])
    cost = np.full((min(shapes, n) + 1, n + 1), np.inf)
    cost[0, 0] = 0.0
    cut = np.zeros(cost.shape, dtype=int)
    for used in range(1, len(cost)):
        for end in range(1, n + 1):
            totals = cost[used - 1, :end] + (below[end] - below[:end]) * edges[end - 1]
            cut[used, end] = int(totals.argmin())
            cost[used, end] = totals[cut[used, end]]
    used, end, widths = int(cost[:, n].argmin()), n, []
    while end:
        widths.append(int(edges[end - 1]))
        used, end = used - 1, int(cut[used, end])
    return widths[::-1]


class Buckets:
    """A batch sampler: indices of rows, all of one width.

    Where rows run out, -1 stands for a row of padding, so that shapes stay the same.
    """

    def __init__(self, lengths: np.ndarray, budget: int, seed: int = 0) -> None:
        """`budget`: tokens a batch, padding among them. A row longer than it is a batch of its own."""
        # A shape that fills less than a few batches leaves more padding rows than it saves padding.
        self.widths = widths_of(
            lengths, shapes=int(min(MAX_SHAPES, max(1, lengths.sum() // (4 * budget))))
        )
        self._rows = [
            np.flatnonzero((lengths <= width) & (lengths > below))
            for below, width in zip([0, *self.widths], self.widths, strict=False)
        ]
        self._sizes = [
            max(1, min(budget // width, len(rows)))
            for width, rows in zip(self.widths, self._rows, strict=True)
        ]
        self._seed, self._epoch = seed, 0
        self.batch_size = None
        """None, since accelerate asks for it."""
        self.drop_last = False

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the next pass over the batches, which the epoch's number seeds."""
        self._epoch = epoch

    def __len__(self) -> int:
        return sum(
            -(-len(rows) // size) for rows, size in zip(self._rows, self._sizes, strict=True)
        )

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        """Each item is (row, width)."""
        dice = np.random.default_rng([self._seed, self._epoch])
        batches: list[list[tuple[int, int]]] = []
        for width, size, rows in zip(self.widths, self._sizes, self._rows, strict=True):
            order = dice.permutation(rows)
            for start in range(0, len(order), size):
                own = order[start : start + size].tolist()
                batches.append([(row, width) for row in own + [-1] * (size - len(own))])
        for place in dice.permutation(len(batches)):
            yield batches[place]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Rows and width of each kind of batch."""
        return list(zip(self._sizes, self.widths, strict=True))

    def padding(self, lengths: np.ndarray) -> float:
        """Share of what is computed that is padding."""
        whole = sum(
            -(-len(rows) // size) * size * width
            for rows, size, width in zip(self._rows, self._sizes, self.widths, strict=True)
        )
        return 1.0 - float(lengths.sum()) / max(1, whole)


class PaddedRows:
    """A data set whose items are named by (row, width), and its collator."""

    def __init__(self, tokens: EncodedRows, pad: int) -> None:
        self._tokens, self._pad = tokens, pad
        self._blank = (np.zeros(0, dtype=np.int32), 0)

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, key: tuple[int, int]) -> tuple[np.ndarray, int, int]:
        """Ids, how many are prompt, and the width."""
        row, width = key
        if row < 0:
            return *self._blank, width
        tokens = self._tokens
        return (
            tokens.ids[tokens.starts[row] : tokens.starts[row + 1]],
            int(tokens.prompts[row]),
            width,
        )

    def collate(self, items: Sequence[tuple[np.ndarray, int, int]]) -> dict[str, torch.Tensor]:
        """`input_ids` and `labels`, both (rows, width), int64."""
        import torch

        width = items[0][2]
        ids = np.full((len(items), width), self._pad, dtype=np.int64)
        labels = np.full((len(items), width), IGNORED_LABEL, dtype=np.int64)
        for place, (own, prompt, _) in enumerate(items):
            ids[place, : len(own)] = own
            labels[place, prompt : len(own)] = own[prompt:]
        return {"input_ids": torch.from_numpy(ids), "labels": torch.from_numpy(labels)}


def loader_of(tokens: EncodedRows, pad: int, budget: int, seed: int, pin: bool) -> Any:
    """A torch DataLoader over the batches of an epoch."""
    from torch.utils.data import DataLoader

    data = PaddedRows(tokens, pad)
    buckets: Any = Buckets(tokens.lengths, budget, seed)
    return DataLoader(data, batch_sampler=buckets, collate_fn=data.collate, pin_memory=pin)  # type: ignore[arg-type]


def dataset_of(tokens: EncodedRows) -> Any:
    """The rows as a `datasets.Dataset` with `input_ids` and `labels`: what SFTTrainer takes as it is.

    No copy is made of the ids.
    """
    import pyarrow as pa
    from datasets import Dataset

    labels = tokens.ids.copy()
    for start, prompt in zip(tokens.starts[:-1], tokens.prompts, strict=True):
        labels[start : start + prompt] = IGNORED_LABEL
    starts = pa.array(tokens.starts)
    columns = {
        "input_ids": pa.LargeListArray.from_arrays(starts, pa.array(tokens.ids)),
        "labels": pa.LargeListArray.from_arrays(starts, pa.array(labels)),
    }
    return Dataset(pa.table(columns))
