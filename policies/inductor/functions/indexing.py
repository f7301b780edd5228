"""Parts of tensors, and tensors of repeated parts, where torch's own asks for sizes as numbers."""

from __future__ import annotations

from typing import Any

from kernelwright.policies.inductor.refusing import Refused
from kernelwright.policies.inductor.tracing.slices import inside_axis


def element(x: Any, index: Any) -> Any:
    """x[index]; an integer that is a symbol selects, where C++ would ask for its number, and a slice ends in its
    axis.
    """
    import torch

    words = list(index) if isinstance(index, tuple) else [index]
    axes = _axes_of(x, words)
    if any(isinstance(w, slice) and w != slice(None) for w in words):
        for place, axis in axes.items():
            if isinstance(word := words[place], slice):
                words[place] = inside_axis(word, x.shape[axis])
        index = tuple(words)
    if any(isinstance(w, torch.SymInt) for w in words):
        for place, axis in reversed(axes.items()):
            if isinstance(words[place], torch.SymInt):
                x = x.select(axis, words.pop(place))
        index = tuple(words)
        if all(isinstance(w, slice) and w == slice(None) for w in words):
            return x
    return torch._C.TensorBase.__getitem__(x, index)


def _axes_of(x: Any, words: list[Any]) -> dict[int, int]:
    """Place of a word of an index -> the axis that it takes; of masks, which take several, none."""
    import torch

    if any(isinstance(w, torch.Tensor) and w.dtype == torch.bool and w.dim() != 1 for w in words):
        return {}
    found, axis = {}, 0
    for place, word in enumerate(words):
        if word is Ellipsis:
            axis += x.dim() - sum(w is not None and w is not Ellipsis for w in words)
        elif word is not None and axis < x.dim():
            found[place] = axis
            axis += 1
    return found


def repeat_interleave(x: Any, repeats: Any, dim: int | None = None, *, output_size: Any = None) -> Any:
    """Writes `torch.repeat_interleave` as a view. Raises Refused where the repeats are a tensor."""
    import torch

    if isinstance(repeats, torch.Tensor):
        raise Refused("repeat_interleave with a tensor of repeats has a size that depends on data")
    if dim is None:
        x, dim = x.flatten(), 0
    dim = dim % x.dim()
    wide = x.unsqueeze(dim + 1).expand(*x.shape[: dim + 1], repeats, *x.shape[dim + 1 :])
    return wide.reshape(*x.shape[:dim], x.shape[dim] * repeats, *x.shape[dim + 1 :])


def chunk(input: Any, chunks: int, dim: int = 0) -> tuple[Any, ...]:
    """Slices of equal length, the last one shorter; how many there are is asked of the sizes only."""
    size = input.shape[dim]
    step = (size + chunks - 1) // chunks
    count = chunks if isinstance(chunks, int) and size % chunks == 0 else int((size + step - 1) // step)
    return tuple(input.narrow(dim, i * step, step if i < count - 1 else size - i * step) for i in range(count))


def unfold(x: Any, dimension: int, size: Any, step: Any) -> Any:
    """Windows of one dimension, gathered."""
    import torch

    dimension = dimension % x.dim()
    count = (x.shape[dimension] - size) // step + 1
    places = torch.arange(count, device=x.device)[:, None] * step + torch.arange(size, device=x.device)[None, :]
    made = torch.index_select(x, dimension, places.flatten()).unflatten(dimension, (count, size))
    return made.movedim(dimension + 1, -1)
