"""The wrong elements of an output: the first, the worst, and a sample of them that fits in a few megabytes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from kernelwright.tools.numerics.tolerance import Tensor, as_rows, distance, rows_of, tiles
from kernelwright.tools.report import WrongElement

MAX_WORST_SHOWN = 5
SAMPLE_PIECES = 16
SAMPLED_ELEMENTS_PER_PIECE = 8192
POISON_BYTES = (0xFF, 0x4B)
"""NaN in every floating type, and a large finite number."""


@dataclass
class ElementSample:
    """Sample of up to 131,072 wrong elements, as flat float64 vectors on the CPU, with statistics
    of the whole output."""

    got: Tensor
    want: Tensor
    index: Tensor
    """Flat indices in ascending order."""
    poisoned: bool
    """Most of them consist of a byte with which the judge fills memory."""
    rms: float
    """The RMS of the reference over the sampled pieces, finite elements only."""
    right_high: float
    """99th percentile of |reference| over correct elements of the pieces; NaN without any."""

    @property
    def gap(self) -> Tensor:
        """Actual minus expected values, float64, in the shape of `got`."""
        return self.got - self.want


def _pieces(wrong: Tensor) -> tuple[list[tuple[slice, slice]], int, int]:
    """Returns at most 16 tiles, evenly spread, the first and the last that hold a wrong element among them."""
    rows, columns = rows_of(tuple(wrong.shape))
    mask = as_rows(wrong, rows, columns)
    every = list(_small_tiles(rows, columns))
    step = max(1, len(every) // 4096)
    hit = [t for t in every[::step] if bool(mask[t].any())] if len(every) > 1 else every
    hit = hit or [t for t in every if bool(mask[t].any())]
    chosen = (
        [hit[i * (len(hit) - 1) // max(1, SAMPLE_PIECES - 1)] for i in range(SAMPLE_PIECES)]
        if len(hit) > SAMPLE_PIECES
        else hit
    )
    return chosen, rows, columns


def _small_tiles(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    return tiles(rows, columns, "cpu")


def sample_wrong(candidate: Tensor, exact: Tensor, wrong: Tensor) -> ElementSample:
    """Samples wrong elements from the whole output, with their expected values."""
    import torch

    chosen, rows, columns = _pieces(wrong)
    c, r, w = (as_rows(t, rows, columns) for t in (candidate, exact, wrong))
    got = []
    want = []
    index = []
    right = []
    squares = 0.0
    element_count = 0
    ones = []
    for down, across in chosen:
        mask, a, b = w[down, across], c[down, across], r[down, across].double()
        at = mask.nonzero()
        at = (
            at[:: max(1, len(at) // SAMPLED_ELEMENTS_PER_PIECE)]
            if len(chosen) > 1
            else at[: SAMPLED_ELEMENTS_PER_PIECE * SAMPLE_PIECES]
        )
        picked = a[at[:, 0], at[:, 1]]
        ones.append(_is_mostly_poison(picked))
        got.append(picked.double().cpu())
        want.append(b[at[:, 0], at[:, 1]].cpu())
        index.append(((at[:, 0] + down.start) * columns + at[:, 1] + across.start).cpu())
        size = b.abs().nan_to_num_(nan=0.0, posinf=0.0)
        right.append(size[~mask].flatten()[:SAMPLED_ELEMENTS_PER_PIECE].cpu())
        squares, element_count = squares + float(size.square().sum()), element_count + size.numel()
    high = torch.cat(right)
    top = (
        float(high.kthvalue(max(1, math.ceil(0.99 * high.numel()))).values)
        if high.numel()
        else math.nan
    )
    return ElementSample(
        torch.cat(got),
        torch.cat(want),
        torch.cat(index),
        sum(ones) > 0.5 * len(ones),
        math.sqrt(squares / max(element_count, 1)),
        top,
    )


def _is_mostly_poison(values: Tensor) -> bool:
    """Returns True if most floating values consist of bytes 0xFF (NaN) or 0x4B, with which the
    judge fills outputs.

    An integer of such bytes (-1) may be a kernel's answer: tools/judging/size_checks.py decides.
    """
    if not values.numel() or values.element_size() == 1 or not values.is_floating_point():
        return False
    return any(float(holds_byte(values, byte).double().mean()) > 0.5 for byte in POISON_BYTES)


def holds_byte(values: Tensor, byte: int) -> Tensor:
    """Returns a flat boolean for each element: all of its bytes are `byte`."""
    import torch

    raw = values.contiguous().reshape(-1).view(torch.uint8).reshape(values.numel(), -1)
    return (raw == byte).all(1)


def first_wrong_index(wrong: Tensor) -> tuple[int, ...]:
    """Returns the index of the first wrong element in row-major order; empty without any."""
    rows, columns = rows_of(tuple(wrong.shape))
    mask = as_rows(wrong, rows, columns)
    for down, across in tiles(rows, columns, wrong.device.type):
        if bool((piece := mask[down, across]).any()):
            position = int(piece.flatten().to(piece.device).int().argmax())
            i, j = divmod(position, piece.shape[1])
            return _unravel((i + down.start) * columns + j + across.start, tuple(wrong.shape))
    return ()


def worst_wrong_indices(candidate: Tensor, exact: Tensor, wrong: Tensor) -> list[tuple[int, ...]]:
    """Returns indices of the wrong elements farthest from the exact output, the worst first."""
    rows, columns = rows_of(tuple(wrong.shape))
    c, r, w = (as_rows(t, rows, columns) for t in (candidate, exact, wrong))
    best: list[tuple[float, int]] = []
    for down, across in tiles(rows, columns, wrong.device.type):
        gap = distance(c[down, across], r[down, across]).masked_fill_(~w[down, across], -1.0)
        top = gap.flatten().topk(min(MAX_WORST_SHOWN, gap.numel()))
        for value, position in zip(top.values.tolist(), top.indices.tolist(), strict=True):
            i, j = divmod(position, gap.shape[1])
            if value >= 0:
                best.append((-value, (i + down.start) * columns + j + across.start))
    return [_unravel(flat, tuple(wrong.shape)) for _, flat in sorted(best)[:MAX_WORST_SHOWN]]


def _unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    coordinates = []
    for size in reversed(shape):
        flat, at = divmod(flat, size)
        coordinates.append(at)
    return tuple(reversed(coordinates))


def describe_element(candidate: Tensor, exact: Tensor, index: tuple[int, ...]) -> WrongElement:
    """Returns a wrong element with its expected and actual value."""
    return WrongElement(index=index, expected=float(exact[index]), got=float(candidate[index]))
