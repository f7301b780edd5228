"""What one of torch's operators that move values did to them, from its name, arguments and result."""

from __future__ import annotations

from typing import Any

import torch


def _copied(name: str, args: Any, made: Any) -> tuple[Any, Any] | None:
    """Returns what an operator that copies has copied to and from."""
    if name not in ("clone", "contiguous", "_to_copy", "copy_") or len(args) <= (name == "copy_"):
        return None
    target, source = (args[0], args[1]) if name == "copy_" else (made, args[0])
    both = isinstance(source, torch.Tensor) and isinstance(target, torch.Tensor)
    return (target, source) if both else None


def has_mantissa(dtype: torch.dtype) -> bool:
    """Whether numbers of a type have a mantissa: whole numbers have none, nor has float8_e8m0fnu (powers of two)."""
    return dtype.is_complex or (dtype.is_floating_point and torch.finfo(dtype).eps < 1)


def truncates(name: str, args: Any, made: Any) -> bool:
    """Whether it turned values into whole numbers, powers of two or truths which hold less of them."""
    copied = _copied(name, args, made)
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


def converts(name: str, args: Any, made: Any) -> bool:
    """Whether it copied into another type."""
    copied = _copied(name, args, made)
    return copied is not None and copied[0].dtype != copied[1].dtype


def rearranges(name: str, args: Any, made: Any) -> bool:
    """Whether an operator of those that move made another order, a larger tensor or other values of what it was given:
    rounded, floating ones of whole ones, or a number in some of the places.
    """
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
    copied = _copied(name, args, made)
    if copied is None or copied[0].numel() < 2:
        return False
    target, source = copied
    return (
        _changes_values(target, source)
        or target.stride() != source.stride()
        or target.shape != source.shape
        or not _dense(target)
    )


def _changes_values(target: Any, source: Any) -> bool:
    """Whether a copy into another type may do more than hold the same in more room."""
    if target.dtype == source.dtype or not target.is_floating_point():
        return False
    return not source.is_floating_point() or target.element_size() <= source.element_size()


def _dense(tensor: Any) -> bool:
    """Whether it is all of its storage: what is copied into a part moves."""
    return bool(tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes())
