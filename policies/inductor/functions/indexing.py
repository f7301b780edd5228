"""Slices, indices and repetitions of tensors with symbolic sizes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from kernelwright.policies.inductor.refusing import DraftRefused
from kernelwright.policies.inductor.tracing.loop_forms import TensorPieces
from kernelwright.policies.inductor.tracing.loops import keeps_loops
from kernelwright.policies.inductor.tracing.numbers import select_sizes
from kernelwright.policies.inductor.tracing.slices import clip_to_axis

if TYPE_CHECKING:
    import torch


def get_item(x: torch.Tensor, index: object) -> Any:
    """Returns x[index]; a tensor made of sizes keeps the sizes of the selected part."""
    return select_sizes(_part(x, index), x, index)


def _part(x: torch.Tensor, index: object) -> Any:
    """Returns x[index] for symbolic integers, integer tensors and slices with symbolic ends.

    A symbolic integer or integer tensor selects (torch's C++ would ask for its value); a slice is
    clipped to its axis.
    """
    import torch

    words: list[Any] = list(index) if isinstance(index, tuple) else [index]
    axes = _axes_of(x, words)
    if any(isinstance(w, slice) and w != slice(None) for w in words):
        for position, axis in axes.items():
            if isinstance(word := words[position], slice):
                words[position] = clip_to_axis(word, x.shape[axis])
        index = tuple(words)
    if any(isinstance(w, torch.SymInt) or is_index_tensor(w) for w in words):
        for position, axis in reversed(axes.items()):
            if isinstance(words[position], torch.SymInt):
                x = x.select(axis, words.pop(position))
            elif is_index_tensor(words[position]):
                x = torch.ops.aten.index.Tensor(x, [None] * axis + [words.pop(position)])
        index = tuple(words)
        if all(isinstance(w, slice) and w == slice(None) for w in words):
            return x
    return torch._C.TensorBase.__getitem__(x, cast(Any, index))


def set_item(x: torch.Tensor, index: object, value: float | torch.Tensor) -> None:
    """x[index] = value; with an integer or an end that is a symbol it is a copy into a view."""
    import torch

    words: list[Any] = list(index) if isinstance(index, tuple) else [index]
    ends = [e for w in words for e in ((w.start, w.stop) if isinstance(w, slice) else (w,))]
    placed = [is_index_tensor(w) for w in words]
    if sum(placed) == 1 and all(p or w == slice(None) for p, w in zip(placed, words, strict=True)):
        put = (
            value
            if isinstance(value, torch.Tensor)
            else torch.full((), value, dtype=x.dtype, device=x.device)
        )
        axis = placed.index(True)
        torch.ops.aten.index_put_.default(x, [None] * axis + [words[axis]], put.to(x.dtype))
    elif not any(isinstance(e, torch.SymInt) for e in ends) or any(
        isinstance(w, torch.Tensor | list) for w in words
    ):
        torch._C.TensorBase.__setitem__(x, cast(Any, index), value)
    elif isinstance(value, torch.Tensor):
        get_item(x, index).copy_(value)
    else:
        get_item(x, index).fill_(value)


def is_index_tensor(word: object) -> bool:
    """Returns whether an index is a tensor of a single integer with an unknown value."""
    import torch

    if not isinstance(word, torch.Tensor) or word.dim() != 0 or word.dtype == torch.bool:
        return False
    return not word.dtype.is_floating_point and not word.dtype.is_complex


def _axes_of(x: torch.Tensor, words: list[Any]) -> dict[int, int]:
    """Place of a word of an index -> the axis it takes; of masks, which take several, none."""
    import torch

    if any(isinstance(w, torch.Tensor) and w.dtype == torch.bool and w.dim() != 1 for w in words):
        return {}
    axis_of_position, axis = {}, 0
    for position, word in enumerate(words):
        if word is Ellipsis:
            axis += x.dim() - sum(w is not None and w is not Ellipsis for w in words)
        elif word is not None and axis < x.dim():
            axis_of_position[position] = axis
            axis += 1
    return axis_of_position


def repeat_interleave(
    x: torch.Tensor, repeats: int, dim: int | None = None, *, output_size: int | None = None
) -> Any:
    """Writes `torch.repeat_interleave` as a view. Raises DraftRefused for a tensor of repeats."""
    import torch

    if isinstance(repeats, torch.Tensor):
        raise DraftRefused(
            "repeat_interleave with a tensor of repeats has a size that depends on data"
        )
    if dim is None:
        x, dim = x.flatten(), 0
    dim = dim % x.dim()
    wide = x.unsqueeze(dim + 1).expand(*x.shape[: dim + 1], repeats, *x.shape[dim + 1 :])
    return wide.reshape(*x.shape[:dim], x.shape[dim] * repeats, *x.shape[dim + 1 :])


def parting_functions() -> list[tuple[str, Any]]:
    """Returns functions that split a tensor: into a symbolic number of pieces if forward loops
    over them.
    """
    import torch

    plain_split, plain_unbind = torch.Tensor.split, torch.Tensor.unbind

    def split(
        tensor: torch.Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0
    ) -> Any:
        if split_size_or_sections == 1 and _counted(tensor.shape[dim]):
            return TensorPieces(tensor, dim, keep=True)
        return plain_split(tensor, split_size_or_sections, dim)

    def unbind(input: torch.Tensor, dim: int = 0) -> Any:
        return (
            TensorPieces(input, dim, keep=False)
            if _counted(input.shape[dim])
            else plain_unbind(input, dim)
        )

    return [("split", split), ("unbind", unbind), ("chunk", chunk), ("tensor_split", tensor_split)]


def _counted(size: int) -> bool:
    import torch

    return keeps_loops() and isinstance(size, torch.SymInt) and bool(size.node.expr.free_symbols)


def chunk(input: torch.Tensor, chunks: int, dim: int = 0) -> Any:
    """Returns slices of equal length, the last shorter; the number of slices is computed from
    sizes only.
    """
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    size = input.shape[dim]
    if _counted(size) and not isinstance(chunks, int) and statically_known_true(chunks == size):
        return TensorPieces(input, dim, keep=True)
    step = (size + chunks - 1) // chunks
    count = (
        chunks if isinstance(chunks, int) and size % chunks == 0 else int((size + step - 1) // step)
    )
    return tuple(
        input.narrow(dim, i * step, step if i < count - 1 else size - i * step)
        for i in range(count)
    )


def tensor_split(
    input: torch.Tensor, indices_or_sections: int | Sequence[int] | torch.Tensor, dim: int = 0
) -> tuple[Any, ...]:
    """Writes `torch.tensor_split` with computed ends: the first parts are longer by one for an
    uneven division.

    Raises DraftRefused for ends in a tensor.
    """
    import torch

    size = input.shape[dim]
    if isinstance(indices_or_sections, torch.Tensor):
        raise DraftRefused(
            "tensor_split by a tensor has sizes that depend on data", advice="give it a list"
        )
    if isinstance(indices_or_sections, list | tuple):
        ends = [*indices_or_sections, size]
        whole = [slice(None)] * (dim % input.dim())
        return tuple(
            get_item(input, (*whole, slice(a, b))) for a, b in zip([0, *ends], ends, strict=False)
        )
    count = int(cast(int, indices_or_sections))
    ends = [i * (size // count) + torch.sym_min(i, size % count) for i in range(count + 1)]
    return tuple(input.narrow(dim, a, b - a) for a, b in itertools.pairwise(ends))


def unfold(x: torch.Tensor, dimension: int, size: int, step: int) -> Any:
    """Gathers the windows of a dimension."""
    import torch

    dimension = dimension % x.dim()
    count = (x.shape[dimension] - size) // step + 1
    positions = (
        torch.arange(count, device=x.device)[:, None] * step
        + torch.arange(size, device=x.device)[None, :]
    )
    windows = torch.index_select(x, dimension, positions.flatten()).unflatten(
        dimension, (count, size)
    )
    return windows.movedim(dimension + 1, -1)
