"""Whether a tensor holds the bits that another one holds, or held itself. In pieces: beside tensors of gigabytes little
more is needed than they are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

PIECE_ELEMENTS = 1 << 26
"""Elements that are compared at a time."""
COPIED_BYTES = 64 << 20
"""A tensor of more bytes is remembered by a hash of them and not by a copy."""
HASHED_WORDS = 1 << 22
"""Elements that are hashed at a time: a block."""
_HASH_SEED = 0x5EED
_BLOCK_MULTIPLIER = 0x9E3779B97F4A7C15
"""An odd number (splitmix64; Steele, Lea and Flood 2014): the hash of each block is multiplied by its power."""


def same_bits(a: Any, b: Any) -> bool:
    """Equal bit for bit, NaN payloads too."""
    import torch

    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not (a.is_contiguous() and b.is_contiguous()):
        a, b = _in_order_of_memory(a, b)
    one, other = _words(a), _words(b)
    return all(
        torch.equal(x, y)
        for x, y in zip(one.split(PIECE_ELEMENTS), other.split(PIECE_ELEMENTS), strict=True)
    )


def _in_order_of_memory(a: Any, b: Any) -> tuple[Any, Any]:
    """Both with their axes in the order of a's strides, the longest first, so that a transposed pair is no copy."""
    order = sorted(range(a.dim()), key=lambda axis: -a.stride(axis))
    return a.permute(order).contiguous(), b.permute(order).contiguous()


def _words(contiguous: Any) -> Any:
    """Returns all elements in one row, as integers of their size; complex ones as pairs."""
    import torch

    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
    return contiguous.reshape(-1).view(whole[contiguous.element_size()])


class RememberedTensor:
    """What a tensor held when this was made."""

    def __init__(self, tensor: Any) -> None:
        """A copy of a small tensor, a hash of a large one."""
        self.copy: Any = tensor.detach().clone() if tensor.nbytes <= COPIED_BYTES else None
        self._form = tensor.shape, tensor.dtype
        self._hash = 0 if self.copy is not None else _hash(tensor)

    def is_in(self, tensor: Any) -> bool:
        """Whether a tensor of this shape and dtype holds the same bits."""
        if self.copy is not None:
            return same_bits(self.copy, tensor)
        return self._form == (tensor.shape, tensor.dtype) and self._hash == _hash(tensor)


def _hash(tensor: Any) -> int:
    """64 bits of all elements and their places, however the tensor lies in memory: each element, as a whole number,
    times an odd number of its place, so that none can change alone. For what nobody tries to forge: whether two calls
    agree, whether the reference changed an input.
    """
    import torch

    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    multipliers = _multipliers(str(tensor.device), HASHED_WORDS)
    for begin, words in _blocks(tensor):
        number, first = divmod(begin, HASHED_WORDS)
        weighted = (words * multipliers[first : first + words.numel()]).sum()
        total += weighted * _signed(pow(_BLOCK_MULTIPLIER, number, 1 << 64))
    return int(total)


@functools.lru_cache(maxsize=16)
def _multipliers(device: str, count: int) -> Any:
    """Odd numbers, one for each place in a block."""
    import torch

    generator = torch.Generator().manual_seed(_HASH_SEED)
    return (
        torch.randint(-(1 << 62), 1 << 62, (count,), generator=generator).mul_(2).add_(1).to(device)
    )


def _signed(number: int) -> int:
    """Returns the same 64 bits as a signed number."""
    return number - (1 << 64) if number >> 63 else number


def _blocks(tensor: Any) -> Iterator[tuple[int, Any]]:
    """Parts of a tensor's elements in their order, as whole numbers, each within one block, and the place of each
    part's first element. A tensor that is not contiguous is copied a few of its rows at a time.
    """
    begin, rows = (
        0,
        max(1, HASHED_WORDS * max(len(tensor), 1) // max(tensor.numel(), 1)) if tensor.dim() else 1,
    )
    for part in [tensor] if tensor.is_contiguous() else tensor.split(rows):
        words = _words(part.detach().contiguous())
        while words.numel():
            piece = words[: HASHED_WORDS - begin % HASHED_WORDS]
            yield begin, piece
            begin, words = begin + piece.numel(), words[piece.numel() :]
