"""Draws with few decisive elements, so that no tolerance hides an omitted element, and draws that
expose unstable formulas.

In each row few elements decide: from row to row they move over the first, the last, the edges of
blocks, the second and the middle; the last of them is anywhere. All others contribute nothing: they
are zero, minus infinity, or equal to the elements with which they are compared. Six elements decide
in a sum: without any of them the answer is wrong by a sixth. Among minus infinities, where only the
largest counts, there are two.

Example: with two, a row of 1,000 numbers becomes `[0, ..., 0, x[127], 0, ..., 0, x[406], 0, ...]`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelwright.tools.references.magnitudes import says_things_twice

if TYPE_CHECKING:
    import torch

ELEMENTS_OF_A_SUM, ELEMENTS_OF_A_MAXIMUM = 6, 2
"""Decisive elements of a row, at most a quarter of the row but never fewer than two."""
FIRST_BLOCK_EDGE, LAST_BLOCK_EDGE = 16, 1 << 14
"""Powers of two between these are block edges: the element before an edge and the element at the
edge decide in turn."""
TIMES_LARGER = 16.0
"""Times larger than drawn are elements among minus infinities: a comparison with a bound must be able to hold there."""
CONVERGED_NOISE = 2.0**-8
"""Relative distance of a second input from the first, as of a prediction from its target after training."""
LIMIT_OF_FLOAT16 = 8
"""Exponents of scales of float16: 65504 is its largest number."""
LIMIT_OF_SMALL_SCALES = 40
"""Exponents of scales under 1: squares of the numbers stay normal in float32."""
GOLDEN_RATIO = 0.6180339887
"""Its multiples, modulo one, are spread evenly however many there are."""
EXPONENT_STEP = 37
"""Exponents of neighbouring rows are so far apart: a prime, so that as many rows as there are exponents have each."""
LEAST_OFFSET, LARGEST_OFFSET = 1e3, 1e5
"""Common offsets of rows in multiples of their spread. Rows have different ones: sums of equal terms are all rounded to
one side, and drift."""


def scatter(numbers: torch.Tensor) -> torch.Tensor:
    """Returns a number below 2^31 for each integer, far apart for neighbours (multiplicative hashing)."""
    return (numbers * 2654435761 + 40503) % 2147483647


def deciding_elements(tensor: torch.Tensor, per_row: int = ELEMENTS_OF_A_SUM) -> torch.Tensor:
    """Returns a mask of decisive elements: a few in each row, and the last three of the tensor."""
    import torch

    columns = tensor.shape[-1]
    rows = tensor.numel() // columns
    walk = torch.tensor(_walk(columns), device=tensor.device)
    row = torch.arange(rows, device=tensor.device)
    mask = torch.zeros(rows, columns, dtype=torch.bool, device=tensor.device)
    walking = max(2, min(per_row, columns // 4)) - 1
    for step in range(walking):
        mask[row, walk[(row * walking + step) % walk.numel()]] = True
    mask[row, scatter(row) % columns] = True
    mask.view(-1)[-min(3, columns) :] = True
    return mask.view(tensor.shape)


def _walk(columns: int) -> list[int]:
    """Returns the decisive columns of successive rows."""
    edges = [
        1 << power
        for power in range(int(math.log2(FIRST_BLOCK_EDGE)), int(math.log2(LAST_BLOCK_EDGE)) + 1)
    ]
    near_edges = [edge - back for edge in edges for back in (1, 0)]
    walk = [0, columns - 1, 1, columns - 2, columns // 2, *near_edges]
    return list(dict.fromkeys(column for column in walk if 0 <= column < columns))


def isolate(tensor: torch.Tensor, filling: float) -> None:
    """Overwrites all but the decisive elements of a tensor, in place. Zeros stay zeros.

    A decisive element has at least the mean magnitude: in a row of a single small number the usual
    forms of tanh and elu lose the digits.
    """
    mean = float(tensor.double().abs().mean())
    larger = tensor.abs().clamp_(min=mean).copysign_(tensor)
    if math.isinf(filling):
        larger.mul_(TIMES_LARGER)
    zeros = tensor == 0
    decides = deciding_elements(
        tensor, ELEMENTS_OF_A_MAXIMUM if math.isinf(filling) else ELEMENTS_OF_A_SUM
    )
    tensor.masked_fill_(~(decides | zeros), filling)
    tensor.copy_(larger.where(decides & ~zeros, tensor))


def repeats_itself(tensor: torch.Tensor) -> bool:
    """Returns True if a kernel may read only a part of the tensor: a symmetric matrix, or a row
    with repeated content."""
    return (
        tensor.dim() > 1
        and bool((tensor != tensor.flatten()[0]).any())
        and says_things_twice(tensor)
    )


def isolate_largest(tensors: Sequence[torch.Tensor], filling: float) -> None:
    """Isolates elements of the tensors with the most elements, in place. The others stay: the few elements of
    several tensors of different forms seldom meet.
    """
    wide = [
        t
        for t in tensors
        if t.itemsize > 1 and t.is_contiguous() and t.dim() and not repeats_itself(t)
    ]
    most = max((t.numel() for t in wide), default=0)
    for tensor in wide:
        if tensor.numel() == most:
            isolate(tensor, filling)


def let_agree(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Makes the second tensor of each pair equal to the first except for the decisive elements, in
    place."""
    import torch

    for first, second in pairs:
        if second.dim() and second.shape == first.shape and not repeats_itself(second):
            second.copy_(
                torch.where(deciding_elements(second), second, _counterpart(first, second))
            )


def _counterpart(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Returns the counterpart of the first tensor: its values, or their exponentials for logarithms
    (none above zero) beside values of which none is below zero, like predictions and targets of a
    divergence."""
    logarithms = bool((first <= 0).all()) and bool((second >= 0).all())
    return first.exp() if logarithms else first


def let_converge(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Makes the second tensor of each pair of one shape nearly equal to the first, in place; the noise is made of the
    second's own numbers.
    """
    for first, second in pairs:
        if second.dim() and second.shape == first.shape and not repeats_itself(second):
            spread = float(second.double().abs().mean()) or 1.0
            second.copy_(_counterpart(first, second) * (1.0 + CONVERGED_NOISE / spread * second))


def scale_rows(tensors: Sequence[torch.Tensor], limit: int) -> None:
    """Multiplies each row of each tensor by a power of two, in place.

    The first and third row by 2^limit, the second by the smallest power, the others by the powers
    between in turn. Every third row, from the third, becomes negative. Elements of a vector count
    as rows.
    """
    import torch

    for tensor in tensors:
        if not tensor.dim() or tensor.itemsize == 1 or repeats_itself(tensor):
            continue
        rows = tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() > 1 else tensor.reshape(-1, 1)
        highest = min(limit, LIMIT_OF_FLOAT16) if tensor.dtype == torch.float16 else limit
        lowest = -min(highest, LIMIT_OF_SMALL_SCALES)
        row = torch.arange(rows.shape[0], device=tensor.device)
        begin = int(float(rows[0, 0].abs()) * 1e3)  # other powers for other numbers
        exponents = lowest + (row + begin) * EXPONENT_STEP % (highest - lowest + 1)
        exponents[row == 1] = lowest
        exponents[(row == 0) | (row == 2)] = highest
        scales = torch.exp2(exponents.float()).to(tensor.dtype).unsqueeze(-1)
        negative = (row % 3 == 2).unsqueeze(-1)
        tensor.copy_((torch.where(negative, -rows.abs(), rows) * scales).view(tensor.shape))


def offset_rows(tensors: Sequence[torch.Tensor]) -> None:
    """Adds to each row of each tensor a common offset of 1e3 to 1e5 times the tensor's spread, in place."""
    import torch

    for tensor in tensors:
        if not tensor.dim() or tensor.itemsize < 4 or repeats_itself(tensor):
            continue
        rows = tensor.numel() // tensor.shape[-1]
        spread = tensor.std() if tensor.numel() > 1 else tensor.abs().sum()
        turn = torch.arange(rows, device=tensor.device).double() * GOLDEN_RATIO % 1.0
        scales = LEAST_OFFSET * (LARGEST_OFFSET / LEAST_OFFSET) ** turn
        offsets = (scales.to(tensor.dtype) * spread).unsqueeze(-1)
        tensor.copy_(
            torch.where(
                tensor == 0,
                tensor,
                tensor + offsets.expand(rows, tensor.shape[-1]).view(tensor.shape),
            )
        )
