"""Structures of whole tensors, for inputs and weights: triangular, diagonal, rank one, equal
halves, constant, equal, counting.

Trained, pruned, tied or freshly initialised weights have such structures, random numbers never do.
A kernel that fails on such a structure passes every random matrix. Each structure has several
traits at once, so that few calls show many of them: a diagonal matrix is symmetric, triangular and
sparse, too.

Example: of rank one with equal rows, the matrix `[[1, 2], [3, 4]]` becomes `[[1, 2], [1, 2]]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.tools.references.redrawing.isolation import repeats_itself, scatter
from kernelwright.tools.references.redrawing.row_structures import structured

if TYPE_CHECKING:
    import torch

ZERO_ROWS_EVERY = 3
ZERO_COLUMNS_EVERY = 4
SELECTED = 256.0
"""A power of two, so that elements selected from another matrix outweigh added terms."""
FLAT_SIDE = 4
"""Side of the squares of one number."""
STRUCTURES_APART = 5
"""How far the structures of two tensors of one call are apart in the list."""

MatrixStructure = Callable[[Any], Any]
"""Takes matrices, (..., rows, columns), and returns others of their shape and type."""


def _lower_triangle(matrix: torch.Tensor) -> Any:
    return matrix.tril()


def _upper_triangle(matrix: torch.Tensor) -> Any:
    return matrix.triu()


def _diagonal(matrix: torch.Tensor) -> Any:
    return matrix.tril().triu()


def _equal_rows(matrix: torch.Tensor) -> Any:
    """Returns rows equal to the first, whose second half repeats its first half."""
    row = matrix[..., :1, :]
    half = (row.shape[-1] + 1) // 2
    columns = _range(matrix, -1) % half
    return row[..., columns].expand_as(matrix)


def _rank_one(matrix: torch.Tensor) -> Any:
    """Returns the product of the first column and the first row, both of eight significant bits,
    with the matrix's magnitude."""
    column, row = (_few_bits(part) for part in (matrix[..., :1], matrix[..., :1, :]))
    size = column.abs().double().mean().clamp(min=1e-30)
    return (column.double() * row.double() / size.log2().round().exp2()).to(matrix.dtype)


def _equal_halves(matrix: torch.Tensor) -> Any:
    """Repeats the rows of the first half in the second half."""
    half = (matrix.shape[-2] + 1) // 2
    return matrix[..., _range(matrix, -2) % half, :]


def _flat_places(matrix: torch.Tensor) -> Any:
    """Squares of one number each."""
    rows, columns = (_range(matrix, d) // FLAT_SIDE * FLAT_SIDE for d in (-2, -1))
    return matrix[..., rows, :][..., columns]


def _few_bits(matrix: torch.Tensor) -> Any:
    """Rounds to bfloat16 numbers: eight significant bits."""
    import torch

    return matrix.to(torch.bfloat16).to(matrix.dtype)


def _with_zero_rows(matrix: torch.Tensor) -> Any:
    rows = _range(matrix, -2)[:, None] % ZERO_ROWS_EVERY == 0
    columns = _range(matrix, -1)[None, :] % ZERO_COLUMNS_EVERY == 1
    return matrix.masked_fill(rows | columns, 0.0)


def _symmetric_bands(matrix: torch.Tensor) -> Any:
    """Returns a symmetric matrix with equal numbers at equal distance from the diagonal."""
    distance = (_range(matrix, -2)[:, None] - _range(matrix, -1)[None, :]).abs()
    first = matrix[..., :1, :] if matrix.shape[-1] >= matrix.shape[-2] else matrix[..., :1].mT
    return first.squeeze(-2)[..., distance]


def _permutation(matrix: torch.Tensor) -> Any:
    """Returns rows with a single nonzero number, SELECTED or its negative: a product with them is
    the other operand, permuted."""
    import torch

    hot = scatter(_range(matrix, -2)) % matrix.shape[-1]
    is_hot = hot[:, None] == _range(matrix, -1)[None, :]
    return torch.where(is_hot, torch.full_like(matrix, SELECTED).copysign(matrix), 0.0)


def _sorted_columns(matrix: torch.Tensor) -> Any:
    return matrix.sort(dim=-2).values


def _proportional_rows(matrix: torch.Tensor) -> Any:
    """Returns rows that are the previous row times 2, 1/2 or -1."""
    import torch

    factors = torch.tensor([1.0, 2.0, -1.0, 0.5], dtype=matrix.dtype, device=matrix.device)
    return matrix[..., :1, :] * factors[_range(matrix, -2) % len(factors)][:, None]


MATRICES_WITHIN_THE_DOMAIN: tuple[MatrixStructure, ...] = (
    _equal_rows, _flat_places, _equal_halves, _few_bits, _symmetric_bands, _sorted_columns,
)  # fmt: skip
"""Structures of a matrix's own numbers, or of their first bits."""
WITH_ZEROS: tuple[MatrixStructure, ...] = (
    _lower_triangle, _upper_triangle, _diagonal, _with_zero_rows, _permutation,
)  # fmt: skip
"""Structures for matrices with numbers of both signs, since they contain zeros."""
MATRICES_OF_BOTH_SIGNS: tuple[MatrixStructure, ...] = (_rank_one, _proportional_rows)
ALL: tuple[MatrixStructure, ...] = (
    *WITH_ZEROS,
    *MATRICES_WITHIN_THE_DOMAIN,
    *MATRICES_OF_BOTH_SIGNS,
    structured,
)
STRUCTURE_COUNT = len(ALL)
"""Number of calls for every structure."""


def _one_number(vector: torch.Tensor) -> Any:
    return vector[:1].expand_as(vector)


def _sorted_numbers(vector: torch.Tensor) -> Any:
    return vector.sort().values


OF_VECTORS: tuple[Callable[[Any], Any], ...] = (_one_number, _few_bits, _sorted_numbers)
"""Structures of a vector's own numbers."""
TWINS = STRUCTURE_COUNT
"""Number of the part in which inputs of equal form are equal, and all weights small."""


def parts_of_structures(inputs: Sequence[Any], weights: Sequence[Any]) -> list[int]:
    """Returns the calls that show the structures possible for these tensors; empty if there are
    none."""
    tensors = [t for t in (*inputs, *weights) if getattr(t, "ndim", 0)]
    floating = [t for t in tensors if t.is_floating_point() and t.itemsize > 1]
    if any(t.ndim > 1 for t in floating):
        parts = [*range(STRUCTURE_COUNT)]
    else:
        parts = [*range(len(OF_VECTORS))] if floating or any(map(_is_index, tensors)) else []
    has_twins = next(_twins(inputs), None) is not None
    return [*parts, TWINS] if has_twins else parts


def _twins(tensors: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yields each floating tensor with the first of its shape and type."""
    first: dict[Any, Any] = {}
    for tensor in tensors:
        if getattr(tensor, "ndim", 0) and tensor.is_floating_point() and not repeats_itself(tensor):
            earlier = first.setdefault((tensor.shape, tensor.dtype), tensor)
            if earlier is not tensor:
                yield earlier, tensor


def let_be_twins(tensors: Sequence[Any]) -> None:
    """Makes floating tensors of equal shape and type equal, in place, as if passed twice."""
    for first, second in _twins(tensors):
        second.copy_(first)


def _is_index(tensor: torch.Tensor) -> bool:
    import torch

    return tensor.dtype in (torch.int32, torch.int64)


def count_up(tensors: Sequence[Any]) -> None:
    """Makes the rows of indices count up from their minimum, in place, if no index is repeated
    then.

    Sorted rows are unchanged: they may hold the starts of segments.
    """
    import torch

    for tensor in tensors:
        if not getattr(tensor, "ndim", 0) or not tensor.numel() or not _is_index(tensor):
            continue
        if bool((tensor[..., 1:] >= tensor[..., :-1]).all()):
            continue
        least, largest = int(tensor.min()), int(tensor.max())
        if 1 < tensor.shape[-1] <= largest - least + 1:
            counted = least + torch.arange(tensor.shape[-1], device=tensor.device)
            tensor.copy_(counted.expand_as(tensor))


def draw_structures(tensors: Sequence[torch.Tensor], part: int, *, are_weights: bool) -> None:
    """Gives each floating tensor a structure, in place. Zeros stay zeros.

    Tensors with repeated rows are unchanged, as are those of a single sign if a structure has other
    signs. part: number of the structure of the first tensor; the next ones are some distance apart.
    are_weights: a tensor's matrix is its first dimension by all others, as for a convolution; an
    input's matrix is its last two dimensions.
    """
    for number, tensor in enumerate(tensors if part < STRUCTURE_COUNT or are_weights else ()):
        if not tensor.dim() or tensor.itemsize == 1 or not tensor.numel():
            continue
        if tensor.dim() == 1:
            changed = OF_VECTORS[(part + number) % len(OF_VECTORS)](tensor)
            tensor.copy_(changed.masked_fill(tensor == 0, 0.0))
            continue
        structure = ALL[(part + number * STRUCTURES_APART) % STRUCTURE_COUNT]
        matrix = tensor.reshape(tensor.shape[0], -1) if are_weights else tensor
        if not _admits(matrix, structure):
            continue
        result = structure(matrix).reshape(tensor.shape)
        tensor.copy_(result.masked_fill(tensor == 0, 0.0))


def _admits(matrix: torch.Tensor, structure: MatrixStructure) -> bool:
    if min(matrix.shape[-2:]) < 2 or repeats_itself(matrix):
        return False
    if structure in MATRICES_WITHIN_THE_DOMAIN or structure is structured:
        return True
    return bool((matrix < 0).any()) and bool((matrix > 0).any())


def _range(matrix: torch.Tensor, dimension: int) -> Any:
    import torch

    return torch.arange(matrix.shape[dimension], device=matrix.device)
