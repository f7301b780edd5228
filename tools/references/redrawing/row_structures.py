"""Draws with structured rows, which random numbers never have: sorted, repeated, mirrored, integer,
one-hot.

Inputs of real models have such rows: padding, repeated embeddings, cumulative times, one-hot
labels, activations of a relu, prefix masks. A kernel that fails on such a row passes every random
row. A structure rearranges or repeats the row's own numbers, so that they stay in the problem's
domain; structures that change signs are used only for rows with numbers of both signs.

Each row takes two structures in sequence. Example: sorted, then each number repeated four times,
the row `[3, -1, 2, 5, 0, 4, 1, 7]` becomes `[-1, -1, -1, -1, 3, 3, 3, 3]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.tools.references.redrawing.isolation import repeats_itself, scatter

if TYPE_CHECKING:
    import torch

REPETITIONS = (2, 4, 8)
"""How often neighbouring elements repeat one another."""
DISTINCT_NUMBERS = 3
"""Different numbers of a row of few."""
WHOLE_NUMBER_SCALE = 4.0
"""Mean magnitude of rows rounded to integers."""
SINGLE_STRUCTURE_STEP = 4
"""One row in so many takes a single structure."""
LIKE_THE_ROW_BEFORE = 7
"""Period of rows equal to the previous row; no divisor of the number of structures, so that
different structures are replaced."""

Structure = Callable[[Any, Any], Any]
"""Takes rows, (rows, columns), and a scattered integer for each element."""


def _sorted(rows: torch.Tensor, scattered: torch.Tensor) -> Any:
    return rows.sort(dim=-1).values


def _sorted_downwards(rows: torch.Tensor, scattered: torch.Tensor) -> Any:
    return rows.sort(dim=-1, descending=True).values


def _mirrored(rows: torch.Tensor, scattered: torch.Tensor) -> Any:
    import torch

    half = (rows.shape[-1] + 1) // 2
    return torch.cat([rows[:, :half], rows[:, : rows.shape[-1] - half].flip(-1)], dim=-1)


def _repeating(times: int) -> Structure:
    def repeated(rows: torch.Tensor, scattered: torch.Tensor) -> Any:
        return rows[:, ::times].repeat_interleave(times, dim=-1)[:, : rows.shape[-1]]

    return repeated


def _of_few_numbers(rows: torch.Tensor, scattered: torch.Tensor) -> Any:
    return rows.gather(-1, scattered % min(DISTINCT_NUMBERS, rows.shape[-1]))


def _of_one_magnitude(rows: torch.Tensor, scattered: torch.Tensor) -> Any:
    return rows[:, :1].abs().expand_as(rows).copysign(rows)


def _alternating(rows: torch.Tensor, scattered: torch.Tensor) -> Any:
    import torch

    signs = 1 - 2 * (torch.arange(rows.shape[-1], device=rows.device) % 2)
    return rows.abs() * signs.to(rows.dtype)


def _whole(rows: torch.Tensor, scattered: torch.Tensor) -> Any:
    scale = rows.abs().mean(-1, keepdim=True).clamp(min=1e-30) / WHOLE_NUMBER_SCALE
    return (rows / scale).round()


def _ramp(rows: torch.Tensor, scattered: torch.Tensor) -> Any:
    """Returns even steps towards zero from the largest power of two within the row's first number,
    exact in few bits."""
    import torch

    columns = rows.shape[-1]
    first = rows[:, :1].masked_fill(rows[:, :1] == 0, 1.0)
    begin = first / torch.frexp(first.float()).mantissa.abs().to(rows.dtype) / 2
    step = 2.0 ** -columns.bit_length()
    return begin * (1 - step * torch.arange(columns, device=rows.device, dtype=rows.dtype))


def _of_a_relu(rows: torch.Tensor, scattered: torch.Tensor) -> Any:
    return rows.clamp(min=0)


def _one_hot(rows: torch.Tensor, scattered: torch.Tensor) -> Any:
    import torch

    hot = scattered[:, :1] % rows.shape[-1] == torch.arange(rows.shape[-1], device=rows.device)
    return hot.to(rows.dtype)


def _with_a_block_of_zeros(rows: torch.Tensor, scattered: torch.Tensor) -> Any:
    import torch

    columns = torch.arange(rows.shape[-1], device=rows.device)
    begin = scattered[:, :1] % rows.shape[-1]
    inside = (columns >= begin) & (columns < begin + rows.shape[-1] // 2 + 1)
    return rows.masked_fill(inside, 0.0)


def _cumulated(rows: torch.Tensor, scattered: torch.Tensor) -> Any:
    return rows.double().cumsum(-1).div(rows.shape[-1] ** 0.5).to(rows.dtype)


WITHIN_THE_DOMAIN: tuple[Structure, ...] = (
    _sorted, _sorted_downwards, _mirrored, *map(_repeating, REPETITIONS), _of_few_numbers, _ramp,
)  # fmt: skip
"""Structures of a row's own numbers, or of numbers of their size and sign."""
OF_BOTH_SIGNS: tuple[Structure, ...] = (
    _of_one_magnitude, _alternating, _whole, _of_a_relu, _one_hot, _with_a_block_of_zeros, _cumulated,
)  # fmt: skip
"""Structures for rows with numbers of both signs."""


def structured(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor with a structure in each row along its last dimension. Zeros stay zeros.

    So triangular and one-hot tensors keep their form. Tensors with sorted or repeated rows, or
    non-finite numbers, are unchanged.
    """
    import torch

    columns = tensor.shape[-1] if tensor.dim() else 1
    if (
        columns < 2
        or tensor.itemsize == 1
        or repeats_itself(tensor)
        or not bool(torch.isfinite(tensor).all())
    ):
        return tensor
    rows = tensor.reshape(-1, columns)
    if bool((rows.diff(dim=-1) >= 0).all()):
        return tensor
    both_signs = bool((rows < 0).any()) and bool((rows > 0).any())
    structures = (*WITHIN_THE_DOMAIN, *(OF_BOTH_SIGNS if both_signs else ()))
    scattered = scatter(torch.arange(rows.numel(), device=rows.device)).view(rows.shape)
    turn = torch.arange(rows.shape[0], device=rows.device) + _first_turn(rows)
    first, second = (
        turn % len(structures),
        scatter(turn) % (len(structures) * SINGLE_STRUCTURE_STEP // (SINGLE_STRUCTURE_STEP - 1)),
    )
    result = rows
    for choice in (second, first):
        result = _by_choice(result, scattered, structures, choice)
    is_like_before = (
        torch.arange(rows.shape[0], device=rows.device) % LIKE_THE_ROW_BEFORE
        == LIKE_THE_ROW_BEFORE - 1
    )
    result = torch.where(is_like_before[:, None], result.roll(1, dims=0), result)
    return torch.where(rows == 0, rows, result).reshape(tensor.shape)


def _by_choice(
    rows: torch.Tensor, scattered: torch.Tensor, structures: Sequence[Structure], choice: Any
) -> Any:
    """Returns rows of which each has the structure of its number; those of a larger number stay."""
    result = rows.clone()
    for number, structure in enumerate(structures):
        chosen = choice == number
        if bool(chosen.any()):
            result[chosen] = structure(rows, scattered)[chosen].to(rows.dtype)
    return result


def _first_turn(rows: torch.Tensor) -> int:
    """Returns an integer derived from the first number, to start other draws with other structures."""
    return int(float(rows.flatten()[0].abs()) * 1e4) if rows.numel() else 0


def structured_mask(mask: torch.Tensor) -> torch.Tensor:
    """Returns booleans whose rows in turn are unchanged, start with their truths, end with them,
    and hold only the first."""
    import torch

    columns = mask.shape[-1] if mask.dim() else 1
    if columns < 2 or repeats_itself(mask):
        return mask
    rows = mask.reshape(-1, columns)
    turn = (torch.arange(rows.shape[0], device=mask.device) + int(rows.sum()))[:, None] % 4
    ascending = rows.to(torch.int8).sort(dim=-1).values.bool()
    result = torch.where(turn == 1, ascending.flip(-1), rows)
    result = torch.where(turn == 2, ascending, result)
    only_first = rows & (rows.cumsum(-1) == 1)
    return torch.where(turn == 3, only_first, result).reshape(mask.shape)
