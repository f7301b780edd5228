"""Computes scale and errors of each row in a single pass over an output.

By Triton on a GPU (tools/comparing/row_errors_kernel.py), otherwise by torch in pieces, with equal
results up to the order in which squares are added.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.tools.numerics.tolerance import Tensor, all_close, distance, tiles

MAX_ROWS_ON_HOST = 1 << 16
"""Rows up to which the numbers of a pass are copied to the host."""
MIN_ELEMENTS_FOR_KERNEL = 1 << 24
"""Minimum number of elements for the kernel, whose compilation takes half a second per dtype and
row width, cached on disk by Triton."""


@dataclass
class RowErrors:
    """Vectors of float64, a number for each row, on the outputs' device."""

    scale: Tensor
    """max |r| over the finite elements."""
    noise: Tensor
    """max |e - r|, or |s - r| if larger, over finite elements."""
    error: Tensor
    """max |c - r|. An element equal to eager's is correct for any r."""
    squares: Tensor
    """(3,): the sums of r^2, noise^2 and error^2 over everything."""
    informative: Tensor
    """Number of elements whose noise eager shows. If e is not finite and r is, eager overflowed,
    and shows none."""
    far: Tensor
    """A boolean: some element of c is not within `tolerance` of e by torch.isclose."""

    def near_the_host(self) -> RowErrors:
        """Returns a copy in host memory, by a single transfer, if there are few rows.

        Later computations take tens of operators, each of which costs more on a GPU than a row.
        """
        import torch

        rows = self.scale.numel()
        if not self.scale.is_cuda or rows > MAX_ROWS_ON_HOST:
            return self
        vectors = [self.scale, self.noise, self.error, self.informative]
        together = torch.cat([*vectors, self.squares, self.far.reshape(1).double()]).cpu()
        scale, noise, error, informative, squares, far = together.split(
            [rows] * len(vectors) + [3, 1]
        )
        return RowErrors(scale, noise, error, squares, informative, far[0] > 0)


def row_errors(c: Tensor, e: Tensor, r: Tensor, s: Tensor | None, tolerance: float) -> RowErrors:
    """Compares candidate, eager, reference and (or None) perturbed reference, each (rows, columns)
    and floating."""
    if c.is_cuda and c.numel() >= MIN_ELEMENTS_FOR_KERNEL:
        from kernelwright.tools.comparing.row_errors_kernel import can_read, measure_rows

        if can_read(c, e, r, s):
            (scale, noise, error), squares, informative, far = measure_rows(c, e, r, s, tolerance)
            return RowErrors(scale, noise, error, squares, informative, far)
    return row_errors_by_torch(c, e, r, s, tolerance)


def row_errors_by_torch(
    c: Tensor, e: Tensor, r: Tensor, s: Tensor | None, tolerance: float
) -> RowErrors:
    """Finds the errors of each row with torch operators, a tile at a time. The tensors have two axes."""
    import torch

    rows, columns = r.shape
    scale, noise, error, informative = torch.zeros(4, rows, dtype=torch.float64, device=r.device)
    squares = torch.zeros(3, dtype=torch.float64, device=r.device)
    far = torch.zeros((), dtype=torch.bool, device=r.device)
    for down, across in tiles(rows, columns, r.device.type):
        exact = r[down, across].double()
        eager = e[down, across]
        gap = (exact - eager).abs_().nan_to_num_(nan=0.0, posinf=0.0)
        if s is not None:
            gap = torch.maximum(
                gap, (exact - s[down, across]).abs_().nan_to_num_(nan=0.0, posinf=0.0)
            )
        finite = exact.abs().nan_to_num_(nan=0.0, posinf=0.0)
        wrong = error_of(c[down, across], eager, r[down, across])
        tells = eager.isfinite() | ~r[down, across].isfinite()
        informative[down] += tells.sum(1)
        far |= ~all_close(eager, c[down, across], tolerance)
        for most, numbers in ((scale, finite), (noise, gap), (error, wrong)):
            torch.maximum(most[down], numbers.amax(1), out=most[down])
        squares += torch.stack([finite.square_().sum(), gap.square_().sum(), wrong.square_().sum()])
    return RowErrors(scale, noise, error, squares, informative, far)


def error_of(c: Tensor, e: Tensor, r: Tensor) -> Tensor:
    """Returns |c - r|; 0 if not finite while the candidate `c` equals eager `e`, or is `r` as an
    infinity of its type."""
    import torch

    if r.is_floating_point() and not c.is_cuda:  # there to look costs no wait
        gap = (c.double() - r).abs_()
        if bool(gap.isfinite().all()):
            return gap
    gap = distance(c, r)
    same = (c == e) | (c.isnan() & e.isnan())
    if c.is_floating_point():
        too_large = r.abs() > torch.finfo(c.dtype).max
        same |= too_large & torch.isinf(c) & (torch.signbit(c) == torch.signbit(r))
    return torch.where(torch.isinf(gap) & same, 0.0, gap)
