"""Covariances, differences, histograms and triangles with symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def statistics_functions() -> dict[str, Any]:
    """Name in torch -> function."""
    import torch

    return {
        "cov": _cov(torch.cov), "corrcoef": corrcoef, "gradient": _gradient(torch.gradient),
        "triu_indices": _triangle(torch.triu_indices, upper=True),
        "tril_indices": _triangle(torch.tril_indices, upper=False),
    }  # fmt: skip


def _cov(plain: Callable[..., Any]) -> Any:
    def cov(
        input: torch.Tensor,
        *,
        correction: int = 1,
        fweights: torch.Tensor | None = None,
        aweights: torch.Tensor | None = None,
    ) -> Any:
        """Writes `torch.cov` without weights as a product of the centered rows."""
        if fweights is not None or aweights is not None:
            return plain(input, correction=correction, fweights=fweights, aweights=aweights)
        rows = input.reshape(1, -1) if input.dim() < 2 else input
        centered = rows - rows.mean(1, keepdim=True)
        covariance = centered @ centered.transpose(0, 1) / (rows.shape[1] - correction)
        return covariance.squeeze() if input.dim() < 2 else covariance

    return cov


def corrcoef(input: torch.Tensor) -> Any:
    """Writes `torch.corrcoef` as the covariance over the deviations of both rows, clamped to [-1,
    1].
    """
    import torch

    covariance = torch.cov(input)
    if input.dim() < 2:
        return covariance / covariance
    deviation = torch.diagonal(covariance).sqrt()
    return (covariance / deviation.unsqueeze(-1) / deviation).clamp(-1, 1)


def _gradient(plain: Callable[..., Any]) -> Any:
    def gradient(
        input: torch.Tensor, *, spacing: float = 1, dim: int | None = None, edge_order: int = 1
    ) -> Any:
        """Writes `torch.gradient` with a single spacing as differences of neighbours."""
        if not isinstance(spacing, int | float) or edge_order != 1:
            return plain(input, spacing=spacing, dim=dim, edge_order=edge_order)
        axes = range(input.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
        return tuple(_differences(input, axis, spacing) for axis in axes)

    return gradient


def _differences(x: torch.Tensor, axis: int, spacing: float) -> Any:
    import torch

    n = x.shape[axis]
    # Central differences inside, one-sided differences at both ends.
    inner = (x.narrow(axis, 2, n - 2) - x.narrow(axis, 0, n - 2)) / (2 * spacing)
    first = (x.narrow(axis, 1, 1) - x.narrow(axis, 0, 1)) / spacing
    last = (x.narrow(axis, n - 1, 1) - x.narrow(axis, n - 2, 1)) / spacing
    return torch.cat([first, inner, last], axis)


def histc(input: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """Writes `torch.histc` as a count of the elements per bin; between the extremes if both
    bounds are equal.
    """
    import torch

    flat: Any = input.reshape(-1)
    low: Any = min
    high: Any = max
    if low == high:
        low, high = flat.amin(), flat.amax()
        low, high = torch.where(low == high, low - 1, low), torch.where(low == high, high + 1, high)
    inside = (flat >= low) & (flat <= high)
    at = (
        torch.where(inside, (flat - low) * bins / (high - low), 0.0)
        .to(torch.int64)
        .clamp(max=bins - 1)
    )
    return torch.zeros(bins, dtype=input.dtype, device=input.device).scatter_add(
        0, at, inside.to(input.dtype)
    )


def _triangle(plain: Callable[..., Any], upper: bool) -> Any:
    def indices(row: int, col: int, offset: int = 0, **options: Any) -> Any:
        """Places of a triangle of a square whose size is a symbol: the row of the t-th follows from a root."""
        import torch

        inside = offset >= 0 if upper else offset <= 0
        square = (
            isinstance(row, torch.SymInt)
            and isinstance(col, torch.SymInt)
            and row.node.expr == col.node.expr
        )
        if not square or not inside:
            return plain(row, col, offset, **options)
        side = row - abs(offset)
        count = side * (side + 1) // 2
        at = torch.arange(count, device=options.get("device"))
        long, short = rows_of_lower_triangle(count - 1 - at if upper else at)
        coordinates = [side - 1 - long, row - 1 - short] if upper else [long + abs(offset), short]
        return torch.stack(coordinates).to(options.get("dtype") or torch.int64)

    return indices


def rows_of_lower_triangle(at: torch.Tensor) -> tuple[Any, Any]:
    """Returns row and column of the t-th element of a lower triangle, t = row (row + 1) / 2 + column."""
    import torch

    # The root is exact up to rounding; the next two lines correct it by one.
    guess = ((torch.sqrt(8 * at.to(torch.float64) + 1) - 1) / 2).to(torch.int64)
    guess = torch.where(guess * (guess + 1) // 2 > at, guess - 1, guess)
    row = torch.where((guess + 1) * (guess + 2) // 2 <= at, guess + 1, guess)
    return row, at - row * (row + 1) // 2
