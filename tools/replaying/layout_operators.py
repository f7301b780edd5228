"""Classifies the effect of a torch operator that moves values, from its name, arguments and result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def _copied(name: str, args: Sequence[Any], result: object) -> tuple[Any, Any] | None:
    """Returns target and source of a copying operator; None for other operators."""
    if name not in ("clone", "contiguous", "_to_copy", "copy_") or len(args) <= (name == "copy_"):
        return None
    target, source = (args[0], args[1]) if name == "copy_" else (result, args[0])
    both = isinstance(source, torch.Tensor) and isinstance(target, torch.Tensor)
    return (target, source) if both else None


def has_mantissa(dtype: torch.dtype) -> bool:
    """Returns False for types without a mantissa: integers, and float8_e8m0fnu (powers of two)."""
    return dtype.is_complex or (dtype.is_floating_point and torch.finfo(dtype).eps < 1)


def truncates(name: str, args: Sequence[Any], result: object) -> bool:
    """Returns True for a conversion to integers, powers of two or booleans that lose values of the
    source."""
    copied = _copied(name, args, result)
    if copied is None:
        return False
    target, source = copied
    if has_mantissa(target.dtype) or target.dtype == source.dtype:
        return False
    floating = source.is_floating_point() or source.is_complex()
    return (
        floating
        or target.is_floating_point()
        or target.dtype == torch.bool
        or target.itemsize < source.itemsize
    )


def converts(name: str, args: Sequence[Any], result: object) -> bool:
    """Returns True for a copy to another dtype."""
    copied = _copied(name, args, result)
    return copied is not None and copied[0].dtype != copied[1].dtype


def rearranges(name: str, args: Sequence[Any], result: object) -> bool:
    """Returns True for a reordered, enlarged or changed result: rounded, converted from integers to
    floats, or partly filled."""
    if name in (
        "cat",
        "stack",
        "constant_pad_nd",
        "repeat",
        "expand_copy",
        "split_with_sizes_copy",
    ):
        return True
    if name in ("fill_", "zero_"):
        return not _dense(args[0])
    copied = _copied(name, args, result)
    if copied is None or copied[0].numel() < 2:
        return False
    target, source = copied
    return (
        _changes_values(target, source)
        or target.stride() != source.stride()
        or target.shape != source.shape
        or not _dense(target)
    )


def _changes_values(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Returns True if a copy to another dtype may do more than widen the values."""
    if target.dtype == source.dtype or not target.is_floating_point():
        return False
    return not source.is_floating_point() or target.element_size() <= source.element_size()


def _dense(tensor: torch.Tensor) -> bool:
    """Returns True if the tensor fills its storage: a copy into a part of a storage moves values."""
    return bool(tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes())
