"""Batches of few distinct shapes: rows of similar length together, filling a budget of tokens,
padded on the right.

Padding follows a row's end, so causal attention never sees it and no mask is needed: the fastest
attention kernel is used, and each shape is compiled once. Packing would need a block-diagonal
mask, which costs more than the few per cent of padding left here.

    lengths 5 30 33 60, step 32  ->  widths [32, 64]: two shapes, (5, 30) and (33, 60)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.rl.training.sft.encoding import EncodedRows

if TYPE_CHECKING:
    import torch

MAX_SHAPES = 6
"""Maximum number of distinct batch widths."""
WIDTH_MULTIPLE = 32
"""Widths are multiples of this number."""
IGNORED_LABEL = -100


def widths_of(
    lengths: np.ndarray, shapes: int = MAX_SHAPES, step: int = WIDTH_MULTIPLE
) -> list[int]:
    """Returns at most `shapes` widths with the least padding (exact, by dynamic programming over
    multiples of `step`).
    """
    rounded = -(-lengths // step) * step
    edges, counts = np.unique(rounded, return_counts=True)
    n = len(edges)
    below = np.concatenate([[0], np.cumsum(counts)])
    # cost[used, end]: fewest padded tokens of the rows up to edges[end - 1] in `used` widths;
    # cut[used, end]: where the last of these widths begins.
    cost = np.full((min(shapes, n) + 1, n + 1), np.inf)
    cost[0, 0] = 0.0
    cut = np.zeros(cost.shape, dtype=int)
    for used in range(1, len(cost)):
        for end in range(1, n + 1):
            # All rows after the cut are padded to the same edge.
            totals = cost[used - 1, :end] + (below[end] - below[:end]) * edges[end - 1]
            cut[used, end] = int(totals.argmin())
            cost[used, end] = totals[cut[used, end]]
    # Follow the cuts back from the cheapest number of widths.
    used, end, widths = int(cost[:, n].argmin()), n, []
    while end:
        widths.append(int(edges[end - 1]))
        used, end = used - 1, int(cut[used, end])
    return widths[::-1]


class Buckets:
    """A batch sampler: indices of rows, all of one width.

    -1 stands for a row of padding after the last row, so shapes stay the same.
    """

    def __init__(self, lengths: np.ndarray, budget: int, seed: int = 0) -> None:
        """Sorts rows into buckets. `budget`: tokens of a batch, padding included. A longer row is
        a batch by itself.
        """
        # A shape that fills less than a few batches leaves more padding rows than it saves padding.
        shapes = int(min(MAX_SHAPES, max(1, lengths.sum() // (4 * budget))))
        self.widths = widths_of(lengths, shapes)
        self._rows: list[np.ndarray] = []
        self._sizes: list[int] = []
        narrower = 0
        for width in self.widths:
            rows = np.flatnonzero((lengths <= width) & (lengths > narrower))
            self._rows.append(rows)
            self._sizes.append(max(1, min(budget // width, len(rows))))
            narrower = width
        self._seed, self._epoch = seed, 0
        self.batch_size = None
        """None; accelerate reads this attribute."""
        self.drop_last = False

    def set_epoch(self, epoch: int) -> None:
        """Seeds the order of the next pass over the batches by the epoch's number."""
        self._epoch = epoch

    def __len__(self) -> int:
        sizes = zip(self._rows, self._sizes, strict=True)
        return sum(-(-len(rows) // size) for rows, size in sizes)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        """Yields batches of (row, width)."""
        dice = np.random.default_rng([self._seed, self._epoch])
        batches: list[list[tuple[int, int]]] = []
        for width, size, rows in zip(self.widths, self._sizes, self._rows, strict=True):
            order = dice.permutation(rows)
            for start in range(0, len(order), size):
                batch_rows = order[start : start + size].tolist()
                padding_rows = [-1] * (size - len(batch_rows))
                batches.append([(row, width) for row in batch_rows + padding_rows])
        for index in dice.permutation(len(batches)):
            yield batches[index]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Rows and width of each kind of batch."""
        return list(zip(self._sizes, self.widths, strict=True))

    def padding(self, lengths: np.ndarray) -> float:
        """Returns the share of padding among the computed tokens."""
        computed = 0
        for rows, size, width in zip(self._rows, self._sizes, self.widths, strict=True):
            computed += -(-len(rows) // size) * size * width
        return 1.0 - float(lengths.sum()) / max(1, computed)


class PaddedRows:
    """A data set with (row, width) as keys, and its collator."""

    def __init__(self, tokens: EncodedRows, pad: int) -> None:
        self._tokens, self._pad = tokens, pad
        self._blank = (np.zeros(0, dtype=np.int32), 0)

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, key: tuple[int, int]) -> tuple[np.ndarray, int, int]:
        """Returns ids, number of prompt tokens, and width."""
        row, width = key
        if row < 0:
            return *self._blank, width
        tokens = self._tokens
        ids = tokens.ids[tokens.starts[row] : tokens.starts[row + 1]]
        return ids, int(tokens.prompts[row]), width

    def collate(self, items: Sequence[tuple[np.ndarray, int, int]]) -> dict[str, torch.Tensor]:
        """Returns `input_ids` and `labels`, both (rows, width), int64.

        prompt 5 6 7, answer 8 2    input_ids  5 6 7 8 2 0    labels  -100 -100 -100 8 2 -100
        """
        import torch

        width = items[0][2]
        ids = np.full((len(items), width), self._pad, dtype=np.int64)
        labels = np.full((len(items), width), IGNORED_LABEL, dtype=np.int64)
        for row, (row_ids, prompt, _) in enumerate(items):
            ids[row, : len(row_ids)] = row_ids
            labels[row, prompt : len(row_ids)] = row_ids[prompt:]
        return {"input_ids": torch.from_numpy(ids), "labels": torch.from_numpy(labels)}


def loader_of(tokens: EncodedRows, pad: int, budget: int, seed: int, pin: bool) -> Any:
    """Returns a torch DataLoader over the batches of an epoch."""
    from torch.utils.data import DataLoader

    data = PaddedRows(tokens, pad)
    buckets: Any = Buckets(tokens.lengths, budget, seed)
    return DataLoader(data, batch_sampler=buckets, collate_fn=data.collate, pin_memory=pin)  # type: ignore[arg-type]


def dataset_of(tokens: EncodedRows) -> Any:
    """Returns the rows as a `datasets.Dataset` with `input_ids` and `labels`, which SFTTrainer
    accepts unchanged.

    The ids are not copied.
    """
    import pyarrow as pa
    from datasets import Dataset

    labels = tokens.ids.copy()
    for start, prompt in zip(tokens.starts[:-1], tokens.prompts, strict=True):
        # Prompt tokens do not count in the loss.
        labels[start : start + prompt] = IGNORED_LABEL
    starts = pa.array(tokens.starts)
    # Large lists address the ids by 64-bit offsets: a corpus may hold more than 2 billion.
    columns = {
        "input_ids": pa.LargeListArray.from_arrays(starts, pa.array(tokens.ids)),
        "labels": pa.LargeListArray.from_arrays(starts, pa.array(labels)),
    }
    return Dataset(pa.table(columns))
