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


@dataclass
class Sample:
    """Wrong elements, up to 131,072 of them, as flat float64 vectors on the CPU, and what is known of the whole."""

    got: Tensor
    want: Tensor
    index: Tensor
    """Flat indices, ascending."""
    poisoned: bool
    """Most hold one byte throughout that a judge fills memory with."""
    rms: float
    """The RMS of the reference over the sampled pieces, finite elements only."""
    right_high: float
    """99th percentile of |reference| over the right elements of the pieces; NaN where there are none."""

    @property
    def gap(self) -> Tensor:
        """What was computed minus what is wanted, float64, of the shape of `got`."""
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


def sample_wrong(candidate: Tensor, exact: Tensor, wrong: Tensor) -> Sample:
    """Draws wrong elements from all over an output, with what they should be."""
    import torch

    chosen, rows, columns = _pieces(wrong)
    c, r, w = (as_rows(t, rows, columns) for t in (candidate, exact, wrong))
    got, want, index, right, squares, seen, ones = [], [], [], [], 0.0, 0, []
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
        squares, seen = squares + float(size.square().sum()), seen + size.numel()
    high = torch.cat(right)
    top = (
        float(high.kthvalue(max(1, math.ceil(0.99 * high.numel()))).values)
        if high.numel()
        else math.nan
    )
    return Sample(
        torch.cat(got),
        torch.cat(want),
        torch.cat(index),
        sum(ones) > 0.5 * len(ones),
        math.sqrt(squares / max(seen, 1)),
        top,
    )


def _is_mostly_poison(values: Tensor) -> bool:
    """Whether most floating values are bytes of 0xFF (NaN) or of 0x4B: what the judge fills outputs with before a call.
    A whole number of such bytes (-1) may be a kernel's answer: tools/judging/size_checks.py finds out.
    """
    if not values.numel() or values.element_size() == 1 or not values.is_floating_point():
        return False
    return any(float(holds_byte(values, byte).double().mean()) > 0.5 for byte in POISON_BYTES)


def holds_byte(values: Tensor, byte: int) -> Tensor:
    """Returns a boolean for each element, in one row: whether all of its bytes are this one."""
    import torch

    raw = values.contiguous().reshape(-1).view(torch.uint8).reshape(values.numel(), -1)
    return (raw == byte).all(1)


def first_wrong_index(wrong: Tensor) -> tuple[int, ...]:
    """Returns the index of the first wrong element in row-major order; empty where there is none."""
    rows, columns = rows_of(tuple(wrong.shape))
    mask = as_rows(wrong, rows, columns)
    for down, across in tiles(rows, columns, wrong.device.type):
        if bool((piece := mask[down, across]).any()):
            place = int(piece.flatten().to(piece.device).int().argmax())
            i, j = divmod(place, piece.shape[1])
            return _unravel((i + down.start) * columns + j + across.start, tuple(wrong.shape))
    return ()


def worst_wrong_indices(candidate: Tensor, exact: Tensor, wrong: Tensor) -> list[tuple[int, ...]]:
    """Returns the indices of the wrong elements that are furthest from the exact output, the worst first."""
    rows, columns = rows_of(tuple(wrong.shape))
    c, r, w = (as_rows(t, rows, columns) for t in (candidate, exact, wrong))
    best: list[tuple[float, int]] = []
    for down, across in tiles(rows, columns, wrong.device.type):
        gap = distance(c[down, across], r[down, across]).masked_fill_(~w[down, across], -1.0)
        top = gap.flatten().topk(min(MAX_WORST_SHOWN, gap.numel()))
        for value, place in zip(top.values.tolist(), top.indices.tolist(), strict=True):
            i, j = divmod(place, gap.shape[1])
            if value >= 0:
                best.append((-value, (i + down.start) * columns + j + across.start))
    return [_unravel(flat, tuple(wrong.shape)) for _, flat in sorted(best)[:MAX_WORST_SHOWN]]


def _unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    place = []
    for size in reversed(shape):
        flat, at = divmod(flat, size)
        place.append(at)
    return tuple(reversed(place))


def describe_element(candidate: Tensor, exact: Tensor, index: tuple[int, ...]) -> WrongElement:
    """Returns one wrong element with the value that was expected and the one that came."""
    return WrongElement(index=index, expected=float(exact[index]), got=float(candidate[index]))
