"""Compares tensors bit for bit, with each other or with an earlier state, in pieces that need
little extra memory."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kernelwright.tools.numerics.pieces import PIECE_ELEMENTS

if TYPE_CHECKING:
    import torch


COPIED_BYTES = 64 << 20
"""Size, in bytes, above which a tensor is remembered by its hash instead of a copy."""
HASHED_WORDS = 1 << 22
"""Number of elements hashed at a time: a block."""
_HASH_SEED = 0x5EED
_BLOCK_MULTIPLIER = 0x9E3779B97F4A7C15
"""An odd number (splitmix64; Steele, Lea and Flood 2014): each block's hash is multiplied by a
power of this."""


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Compares two tensors bit for bit, including NaN payloads."""
    import torch

    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not (a.is_contiguous() and b.is_contiguous()):
        a, b = _in_order_of_memory(a, b)
    first_words, second_words = _words(a), _words(b)
    return all(
        torch.equal(x, y)
        for x, y in zip(
            first_words.split(PIECE_ELEMENTS), second_words.split(PIECE_ELEMENTS), strict=True
        )
    )


def _in_order_of_memory(a: torch.Tensor, b: torch.Tensor) -> tuple[Any, Any]:
    """Returns both with axes in the order of a's strides, longest first, so that a transposed pair
    needs no copy."""
    order = sorted(range(a.dim()), key=lambda axis: -a.stride()[axis])
    return a.permute(order).contiguous(), b.permute(order).contiguous()


def _words(contiguous: torch.Tensor) -> Any:
    """Returns all elements in a single row, as integers of their size; complex numbers as pairs."""
    import torch

    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
    return contiguous.reshape(-1).view(whole[contiguous.element_size()])


class RememberedTensor:
    """Remembers a tensor's contents."""

    def __init__(self, tensor: torch.Tensor) -> None:
        """Stores a copy of a small tensor, a hash of a large one."""
        self.copy: Any = tensor.detach().clone() if tensor.nbytes <= COPIED_BYTES else None
        self._form = tensor.shape, tensor.dtype
        self._hash = 0 if self.copy is not None else _hash(tensor)

    def is_in(self, tensor: torch.Tensor) -> bool:
        """Returns True if a tensor has the remembered shape, dtype and bits."""
        if self.copy is not None:
            return same_bits(self.copy, tensor)
        return self._form == (tensor.shape, tensor.dtype) and self._hash == _hash(tensor)


def _hash(tensor: torch.Tensor) -> int:
    """Returns a 64-bit hash of all elements and their positions, independent of the memory layout.

    Each element, as an integer, is multiplied by an odd number of its position, so that a single
    change always shows. Not resistant to forgery: for comparing two calls, or the reference's
    inputs.
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
    """Returns an odd number for each position in a block."""
    import torch

    generator = torch.Generator().manual_seed(_HASH_SEED)
    return (
        torch.randint(-(1 << 62), 1 << 62, (count,), generator=generator).mul_(2).add_(1).to(device)
    )


def _signed(number: int) -> int:
    """Returns the same 64 bits as a signed number."""
    return number - (1 << 64) if number >> 63 else number


def _blocks(tensor: torch.Tensor) -> Iterator[tuple[int, Any]]:
    """Yields parts of a tensor's elements in order, as integers, each within a block, with the
    index of its first element.

    A non-contiguous tensor is copied a few rows at a time.
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
