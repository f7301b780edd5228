"""Fake tensors whose values are known: small ones that are made from numbers alone, and what follows from them.

Host code may read those (`[rate.item() for rate in torch.linspace(0, 0.1, depth)]`). Their values are kept beside the
storages that they lie in, and forgotten as soon as an operator may have written there, or a kernel was launched. The
`constant` of torch's own fake tensors is not used: a view of one is given a storage of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

MAX_KNOWN_ELEMENTS = 4096
"""Elements of a tensor whose value is kept, at most."""
Place = tuple[tuple[int, ...], tuple[int, ...], int]
Known = dict[Place, torch.Tensor]


class KnownValues:
    """The known values of the fake tensors of one mode, which tells of each operator before and after it is done."""

    def __init__(self) -> None:
        self._by_storage: dict[int, tuple[Any, Known]] = {}
        """The storage itself too, so that no other one gets its address."""

    def number(self, func: Any, args: Any) -> Any:
        """What `item` of a known tensor gives; None for everything else."""
        if func is not torch.ops.aten._local_scalar_dense.default:
            return None
        known = self._of(args[0])
        if known is None:
            return None
        with unset_fake_temporarily():
            return known.item()

    def give(self, func: Any, args: Any, kwargs: Any, made: Any) -> None:
        """Notes the value of what an operator made, where it follows from numbers."""
        if (
            func.namespace not in ("aten", "prims")
            or func._schema.is_mutable
            or "empty" in str(func)
        ):
            return
        if torch.Tag.nondeterministic_seeded in func.tags or not all(
            map(_is_small, results := tree_leaves(made))
        ):
            return
        leaves, form = tree_flatten((args, kwargs))
        known = [self._value(leaf) for leaf in leaves]
        if any(
            (value is None) != (leaf is None) for leaf, value in zip(leaves, known, strict=True)
        ):
            return
        given, named = tree_unflatten(known, form)
        try:
            with unset_fake_temporarily():
                values = func(*given, **named)
        except (NotImplementedError, RuntimeError):  # for a GPU alone: its value is not known then
            return
        for one, value in zip(results, tree_leaves(values), strict=True):
            storage = one.untyped_storage()
            self._by_storage.setdefault(int(storage._cdata), (storage, {}))[1][_place(one)] = value

    def forget_written(self, func: Any, values: Any) -> None:
        """Forgets what lies where this operator may write to."""
        if self._by_storage and func._schema.is_mutable:
            for tensor in tree_leaves(list(values)):
                if isinstance(tensor, FakeTensor) and tensor.layout is torch.strided:
                    self._by_storage.pop(int(tensor.untyped_storage()._cdata), None)

    def forget_all(self) -> None:
        """A kernel was launched, and may have written anywhere."""
        self._by_storage.clear()

    def _of(self, tensor: Any) -> torch.Tensor | None:
        if (
            not self._by_storage
            or not isinstance(tensor, FakeTensor)
            or tensor.layout is not torch.strided
        ):
            return None
        found = self._by_storage.get(int(tensor.untyped_storage()._cdata))
        return None if found is None else found[1].get(_place(tensor))

    def _value(self, value: Any) -> Any:
        """What stands for an argument where a result is worked out; None for a tensor or a symbol that is not known.

        For a tensor it is its value, and for a device this machine's processor.
        """
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return None
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return self._of(value) if isinstance(value, torch.Tensor) else value


def _place(tensor: torch.Tensor) -> Place:
    """Where in its storage it lies."""
    return tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())


def _is_small(made: Any) -> bool:
    """Whether it is a fake tensor of few elements, whose number is no symbol."""
    if not isinstance(made, FakeTensor) or made.layout is not torch.strided:
        return False
    return all(isinstance(n, int) for n in made.shape) and made.numel() <= MAX_KNOWN_ELEMENTS
