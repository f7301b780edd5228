"""Draws searched for outcomes of a kernel's comparisons that no other draw has produced.

Each changes a draw of the problem: thresholds are placed among the inputs, magnitudes are spread
over the type's range, or rows are scaled until an intermediate result reaches the other operand.

Example: for `norm > 1e7` over rows with norms near 10, `Scaled(1e6)` multiplies rows by 1.5e6, by
its square root, its square and so on, the rows in turn.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kernelwright.tools.expected.prepared_problem import (
    ExpectedOutputs,
    PreparedProblem,
    float64_outputs,
    run_on,
)
from kernelwright.tools.operators.operators import sort_again, sorted_inputs
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.references.arithmetic import is_accurate
from kernelwright.tools.references.input_distributions import RELATIVE_OFFSETS, Draw
from kernelwright.tools.references.magnitudes import limit_powers, may_be_enlarged
from kernelwright.tools.references.redrawing.domains import DomainsKept
from kernelwright.tools.references.redrawing.element_maps import hash_of_values, spread_magnitudes
from kernelwright.tools.references.redrawing.isolation import repeats_itself

if TYPE_CHECKING:
    import torch

POWERS_OF_ROWS = (1.0, 0.5, 2.0, 1 / 3, -1.0, -0.5)
"""Powers of a factor for scaling rows in turn: a square needs its root, a reciprocal the inverse.
"""
BEYOND = 1.5
"""How far beyond the other operand a scaled one is to come."""


def _as_it_is(values: torch.Tensor) -> None:
    """Leaves whole numbers as they are."""


@dataclasses.dataclass(frozen=True)
class Put:
    """Places numbers among the inputs.

    Every second row is filled with one of them and numbers beyond, up to twice or half as large, in
    turn; in the other rows every third number is one of them or a neighbour, of either sign.
    """

    numbers: tuple[float, ...]

    def __str__(self) -> str:
        return f"among the inputs: {', '.join(f'{number:.6g}' for number in self.numbers)}"

    def floating(self, values: torch.Tensor) -> None:
        """Changes a tensor of floating-point numbers in place; zeros stay."""
        import torch

        fitting = [n for n in self.numbers if abs(n) <= torch.finfo(values.dtype).max]
        if not fitting:
            return
        mixed, width = hash_of_values(values), values.shape[-1] if values.dim() else 1
        numbers = torch.tensor(fitting, dtype=values.dtype, device=values.device)
        eps = torch.finfo(values.dtype).eps
        # The last ones lead to the number's neighbours: `(x > 0.7315) & (x < 0.7315002)` is true
        # at no other place.
        steps = (*RELATIVE_OFFSETS, eps, -eps, eps / 2, -eps / 2)
        offsets = torch.tensor(steps, dtype=values.dtype, device=values.device)
        row = (
            torch.arange(values.numel(), device=values.device)
            .div(width, rounding_mode="floor")
            .view(values.shape)
        )
        near = numbers[(mixed >> 9).remainder(len(fitting)).long()]
        near = near + near * offsets[((mixed >> 5) % len(offsets)).long()]
        near = near * (1 - 2 * ((mixed >> 3) & 1))
        turn, number = row // (2 * len(fitting)), numbers[row // 2 % len(fitting)]
        spread = 1 + (mixed % 4096) / 4096.0
        grows = (number.abs() >= 1) ^ (turn % 2 == 1)
        sign = 1 - 2 * (turn // 2 % 2)
        filled = number * sign * torch.where(grows, spread, 1 / spread)
        chosen = torch.where(row % 2 == 0, filled.to(values.dtype), near.to(values.dtype))
        keeps = (values == 0) | ((row % 2 == 1) & (mixed % 3 != 0))
        values.copy_(torch.where(keeps | ~chosen.isfinite(), values, chosen))

    def whole(self, values: torch.Tensor) -> None:
        """Changes a tensor of integers in place; a sign that does not occur is not introduced."""
        import torch

        limits = torch.iinfo(values.dtype)
        fitting = [
            int(n)
            for n in self.numbers
            if math.isfinite(n) and limits.min < n - 1 and n + 1 < limits.max
        ]
        if bool((values >= 0).all()):
            fitting = [n for n in map(abs, fitting) if n > 0]
        if not fitting:
            return
        index = torch.arange(values.numel(), device=values.device).view(values.shape)
        numbers = torch.tensor(fitting, dtype=values.dtype, device=values.device)
        near = numbers[index % len(fitting)] + (index // len(fitting) % 3 - 1).to(values.dtype)
        values.copy_(torch.where(index % 2 == 0, near, values))


@dataclasses.dataclass(frozen=True)
class Spread:
    """Spreads magnitudes evenly over powers of two, up to 2^limit and down to 2^-limit; signs are drawn."""

    limit: int

    def __str__(self) -> str:
        return f"magnitudes from 2^-{self.limit} to 2^{self.limit}"

    def floating(self, values: torch.Tensor) -> None:
        """Changes a tensor of floating-point numbers in place; zeros stay."""
        values.copy_(spread_magnitudes(values, self.limit))

    whole = staticmethod(_as_it_is)


@dataclasses.dataclass(frozen=True)
class Scaled:
    """Scales rows by powers of a factor in turn, or all numbers by the factor."""

    factor: float
    in_turns: bool = True

    def __str__(self) -> str:
        return f"scaled by {self.scale:.6g}{', its root, square and inverse, by rows' if self.in_turns else ''}"

    @property
    def scale(self) -> float:
        """Factor of all numbers if rows do not alternate: slightly above `factor`."""
        return _beyond(self.factor)

    def floating(self, values: torch.Tensor) -> None:
        """Changes a tensor of floating-point numbers in place."""
        import torch

        powers = POWERS_OF_ROWS if self.in_turns else (1.0,)
        scales = torch.tensor(
            [_beyond(self.factor**power) for power in powers], dtype=torch.float64
        )
        width = values.shape[-1] if values.dim() else 1
        row = (
            torch.arange(values.numel(), device=values.device)
            .div(width, rounding_mode="floor")
            .view(values.shape)
        )
        scaled = values.double() * scales.to(values.device)[row % len(powers)]
        values.copy_(
            torch.where(
                scaled.abs() <= torch.finfo(values.dtype).max, scaled.to(values.dtype), values
            )
        )

    whole = staticmethod(_as_it_is)


def _beyond(scale: float) -> float:
    return scale * BEYOND if scale > 1.0 else scale / BEYOND


Change = Put | Spread | Scaled


def searched_outputs(
    prepared: PreparedProblem, change: Change, seed: int, model: torch.nn.Module | None = None
) -> ExpectedOutputs | None:
    """Returns a changed draw of the problem's own inputs with its expected outputs.

    None if no input can be changed, and if the reference raises, is not finite, or is far from
    float64: such inputs show nothing about a kernel.
    """
    import torch

    model = prepared.model if model is None else model
    inputs = prepared.reference.inputs(seed)
    in_order = sorted_inputs(inputs) if prepared.searches else ()
    domains = DomainsKept(inputs, prepared.domains)
    takes_whole = isinstance(change, Put) and may_be_enlarged(prepared.reference, model, inputs)
    for value in inputs:
        if not isinstance(value, torch.Tensor) or not value.numel() or value.itemsize == 1:
            continue
        if value.is_complex() and not value.is_conj():
            change.floating(torch.view_as_real(value))
        elif value.is_floating_point() and not repeats_itself(value):
            change.floating(value)
        elif takes_whole and value.dtype in (torch.int16, torch.int32, torch.int64):
            change.whole(value)
    if not takes_whole and not any(
        isinstance(v, torch.Tensor) and v.dtype.to_real().is_floating_point for v in inputs
    ):
        return None
    domains.restore()
    if prepared.exponentiates_products:
        limit_powers(inputs)
    sort_again(inputs, in_order)
    expected = ExpectedOutputs(inputs, [], None, seed & 0x7FFFFFFF, model, str(Draw.SEARCHED))
    try:
        expected.eager = run_on(prepared, expected, model, inputs)
    except (ProblemError, RuntimeError, ValueError, IndexError):
        return None
    if not expected.finite():
        return None
    expected.exact = float64_outputs(prepared, expected)
    return expected if is_accurate(expected.eager, expected.exact) else None


def usable_numbers(
    numbers: Sequence[float], legal: Callable[[tuple[float, ...]], bool], trials: int
) -> tuple[float, ...]:
    """Returns the numbers that the reference accepts among its inputs: all together, or else by
    halves, in at most `trials` runs."""
    waiting, usable = [tuple(numbers)], list[float]()
    while waiting and trials > 0:
        group = waiting.pop(0)
        trials -= 1
        if not group or legal(group):
            usable += group
        elif len(group) > 1:
            half = len(group) // 2
            waiting += [group[:half], group[half:]]
    return tuple(usable)
