"""Compares stepped outputs: a rounding before a floor, a cast or a comparison moves them by a whole
step.

An element may be on the other side of a step if the value before the step is within arithmetic
noise of it on that draw. Noise is measured: the reference runs on inputs moved by a few ulps, and
an element may deviate as far as in any of these runs. Two bounds apply to all such elements
together:

- They are no more than the elements that move in the reference under noise of an ulp.
- If they are many more than lie near a step by chance, they lie on both sides: noise has no direction. Inputs on a
  grid (multiples of 0.1, divided by 0.1) lie on steps by the thousand, and a kernel that rounds halves up, or floors a
  rounded quotient, is wrong on one side there.

Example: round(x / 0.1) for x = 0.25 is 2 in eager (0.25 / 0.1 = 2.5, halves to even). The reference
on x moved by an ulp gives 2 or 3, so 3 is accepted; 4 is not.

Floating outputs must also be within a few ulps of their row's scale, and within the noise of nine
in ten of its elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelwright.tools.numerics.pieces import pieces
from kernelwright.tools.numerics.tolerance import Allowance, distance, tiles

if TYPE_CHECKING:
    import torch

MIN_EXCUSED_ELEMENTS = 4
"""Elements that may be on the other side of a step independent of the reference's: two of 100,000
occur by chance."""
ELEMENTS_PER_MOVED = 2
"""Elements of a candidate per element that moves in the reference under noise of an ulp."""
MIN_ONE_SIDED_ELEMENTS = 16
ONE_SIDED_SHARE = 0.75
"""Share of many stepped elements on a single side above which they are no noise."""
CHANCE_ULPS = 16
CHANCE_FACTOR = 4
"""Units in the last place, and times the expected count, up to which elements lie near a step by chance."""
QUANTILE_OF_ROW_NOISE = 0.9
REACH_ROUNDING = 1e-6
"""Relative error of a distance in float32."""


@dataclass(frozen=True)
class StepReach:
    """Range of movement of each output element for inputs moved by noise; float32, in the output's
    shape."""

    reach: torch.Tensor
    """The largest distance from the float64 reference in any run, eager's own included."""
    unit_reach: torch.Tensor
    """The same under noise of one unit in the last place."""

    @staticmethod
    def of_distance(moved: torch.Tensor, exact: torch.Tensor) -> StepReach:
        """Returns steps as far as `moved` lies from `exact` at each element."""
        reach = distance(moved, exact).nan_to_num_(posinf=0.0).float()
        return StepReach(reach, reach)

    def moved_from(self, exact: torch.Tensor) -> torch.Tensor:
        """Returns the float64 reference `exact` moved up by the reach of each element, in its shape."""
        return exact.double() + self.reach.reshape(exact.shape)

    def as_rows(self, rows: int, columns: int) -> StepReach:
        """Returns the same as matrices."""
        return StepReach(self.reach.reshape(rows, columns), self.unit_reach.reshape(rows, columns))


def base_tolerance(r: torch.Tensor, allow: Allowance) -> torch.Tensor:
    """Returns a few units in the last place of each row's scale, a column; zeros for whole numbers."""
    import torch

    rows, columns = r.shape
    scale = torch.zeros(rows, 1, dtype=torch.float64, device=r.device)
    if not r.is_floating_point() or not allow.ulps:
        return scale
    squares = torch.zeros((), dtype=torch.float64, device=r.device)
    for down, across in tiles(rows, columns, r.device.type):
        size = r[down, across].double().abs().nan_to_num_(nan=0.0, posinf=0.0)
        torch.maximum(scale[down], size.amax(1, keepdim=True), out=scale[down])
        squares += size.square_().sum()
    least = max(allow.floor * math.sqrt(float(squares) / max(r.numel(), 1)), allow.least)
    return allow.ulps * scale.clamp(min=least)


def unexplained_elements(
    c: torch.Tensor,
    r: torch.Tensor,
    wrong: torch.Tensor,
    steps: StepReach,
    base: torch.Tensor,
    allow: Allowance,
) -> torch.Tensor:
    """Returns the wrong elements that noise does not explain; all stepped ones if they are more
    than noise moves.

    c, r: candidate and float64 reference, matrices of rows. wrong: elements that deviate by more
    than `base`.
    """
    import torch

    noise = base + allow.factor * _noise_of_rows(steps.reach, r)
    error = distance(c[wrong], r[wrong])
    reach = steps.reach[wrong].double()
    stepped = (error > noise.expand(r.shape)[wrong]) | (error == 0)
    unexplained = stepped & (error > base.expand(r.shape)[wrong] + reach * (1 + REACH_ROUNDING))
    moved = int((steps.unit_reach > noise).sum())
    if int(stepped.sum()) > ELEMENTS_PER_MOVED * moved + MIN_EXCUSED_ELEMENTS:
        unexplained = stepped
    return torch.zeros_like(wrong).masked_scatter_(wrong, unexplained)


def are_one_sided(
    c: torch.Tensor, e: torch.Tensor, r: torch.Tensor, not_eager: torch.Tensor, eps: float
) -> bool:
    """Returns True if a candidate steps differently from eager, more often than by chance, and on a
    single side.

    Sides are above or below eager, farther from or nearer to zero. not_eager: a boolean for each
    element that differs from eager. eps: that of the coarsest input.
    """
    import torch

    count = int(not_eager.sum())
    if count <= MIN_ONE_SIDED_ELEMENTS:
        return False
    wide_type = torch.float64 if c.is_floating_point() else torch.int64
    mine = c[not_eager].to(wide_type)
    eager = e[not_eager].to(wide_type)
    # Expected number of elements within CHANCE_ULPS of a step: the sum of rounding errors, to both sides, over the
    # distance of two steps.
    by_chance = 2 * CHANCE_ULPS * eps * _size(r) / float(distance(mine, eager).median())
    if count <= CHANCE_FACTOR * by_chance + MIN_ONE_SIDED_ELEMENTS:
        return False
    above = _excess(mine > eager, mine < eager)
    outside = _excess(mine.abs() > eager.abs(), mine.abs() < eager.abs())
    return max(above, outside) > ONE_SIDED_SHARE * count


def _excess(greater: torch.Tensor, less: torch.Tensor) -> int:
    """Returns by how many elements one of the sides has more than the other."""
    return abs(int(greater.sum()) - int(less.sum()))


def _size(r: torch.Tensor) -> float:
    return sum(
        float(piece.double().abs().nan_to_num_(0.0, 0.0, 0.0).sum()) for (piece,) in pieces(r)
    )


def _noise_of_rows(reach: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """Returns the maximum movement of nine in ten elements per row; 0 for integers, which only move
    by steps."""
    import torch

    if not r.is_floating_point():
        return torch.zeros(r.shape[0], 1, dtype=torch.float64, device=r.device)
    rank = max(1, math.ceil(QUANTILE_OF_ROW_NOISE * reach.shape[1]))
    return reach.kthvalue(rank, dim=1, keepdim=True).values.double()


def raise_reach(reach: torch.Tensor, moved: torch.Tensor, exact: torch.Tensor) -> None:
    """Raises each element of `reach` to the distance of the other two if finite, in place and in
    pieces."""
    import torch

    for target, moved_piece, exact_piece in pieces(reach, moved, exact):
        torch.maximum(
            target,
            distance(moved_piece, exact_piece).nan_to_num_(posinf=0.0).to(target.dtype),
            out=target,
        )
