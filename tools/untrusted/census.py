"""What the host code asks of torch beside its launches: operators that compute, operators that only allocate, view or copy, and reads by the host."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

ALLOCATIONS = frozenset(
    [
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "zeros",
        "zeros_like",
        "new_zeros",
        "ones",
        "ones_like",
        "new_ones",
        "full",
        "full_like",
        "new_full",
        "fill_",
        "fill",
        "zero_",
        "scalar_tensor",
        "arange",
    ]
)
COPIES = frozenset(
    [
        "clone",
        "copy_",
        "contiguous",
        "_to_copy",
        "cat",
        "stack",
        "constant_pad_nd",
        "repeat",
        "expand_copy",
        "lift_fresh",
        "lift_fresh_copy",
        "lift",
        "set_",
        "resize_",
        "record_stream",
        "pin_memory",
        "_pin_memory",
        "is_pinned",
        "split_with_sizes_copy",
    ]
)
"""They move elements and change none (a change of dtype rounds them; it is listed by name)."""
READS = frozenset({"_local_scalar_dense", "item", "equal", "is_nonzero", "nonzero"})
FREE = frozenset(
    {
        "detach",
        "alias",
        "is_same_size",
        "sym_size",
        "sym_stride",
        "sym_numel",
        "_unsafe_view",
        "_reshape_alias",
        "device",
        "dim",
        "size",
        "stride",
    }
)


class Census:
    """Filled by `note`, once an operator."""

    def __init__(self) -> None:
        self._compute: Counter[str] = Counter()
        self._layout: Counter[str] = Counter()
        self._reads: Counter[str] = Counter()
        self._operations = 0

    def note(self, func: Any, args: Any, kwargs: dict[str, Any], made: Any) -> None:
        name = func.overloadpacket.__name__
        if name in READS or (name == "_to_copy" and _leaves_the_gpu(args, kwargs)):
            self._reads[name] += 1
        elif _moves(func):
            self._layout[str(func)] += 1
        else:
            self.note_computing(func, args, kwargs, made)

    def note_computing(self, func: Any, args: Any, kwargs: dict[str, Any], made: Any) -> None:
        """Notes an operator that computes, and no other."""
        if _moves(func) or func.overloadpacket.__name__ in READS:
            return
        self._compute[str(func)] += 1
        self._operations += operations(func, args, kwargs, made)

    def read(self, name: str) -> None:
        """A read by the host that no operator shows, such as numpy()."""
        self._reads[name] += 1

    def as_message(self) -> dict[str, Any]:
        return {
            "compute_ops": dict(self._compute),
            "layout_ops": dict(self._layout),
            "host_reads": dict(self._reads),
            "operations": self._operations,
        }


def _moves(func: Any) -> bool:
    name = func.overloadpacket.__name__
    return name in ALLOCATIONS or name in COPIES or name in FREE or func.is_view


def operations(func: Any, args: Any, kwargs: dict[str, Any], made: Any) -> int:
    """Floating-point operations: torch's own formula for products, else one for each element that is read or made, whichever is more."""
    formula = flop_registry.get(func.overloadpacket)
    if formula is not None:
        return int(formula(*args, **kwargs, out_val=made))
    sizes = [t.numel() for t in (*_tensors(args), *_tensors(made))]
    return max(sizes, default=0)


def _tensors(tree: Any) -> list[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [t for item in tree for t in _tensors(item)] if isinstance(tree, tuple | list) else []


def _leaves_the_gpu(args: Any, kwargs: dict[str, Any]) -> bool:
    target = kwargs.get("device")
    return (
        bool(args)
        and isinstance(args[0], torch.Tensor)
        and args[0].device.type == "cuda"
        and target is not None
        and torch.device(target).type == "cpu"
    )
