"""Fake tensors whose values are known: small ones that a factory made from numbers alone, and what follows from them.

Host code may read those (`[rate.item() for rate in torch.linspace(0, 0.1, depth)]`). Their values are kept beside the
storages that they lie in, and forgotten as soon as an operator may have written there, or a kernel was launched. The
`constant` of torch's own fake tensors is not used: a view of one is given a storage of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

FACTORIES = frozenset({"arange", "linspace", "logspace", "full", "zeros", "ones", "eye", "scalar_tensor"})
MOST_ELEMENTS = 4096
Place = tuple[tuple[int, ...], tuple[int, ...], int]
Known = dict[Place, torch.Tensor]


class KnownValues:
    """Of the fake tensors of one process."""

    def __init__(self) -> None:
        self._by_storage: dict[int, tuple[Any, Known]] = {}
        """The storage itself too, so that no other one gets its address."""

    def number(self, func: Any, args: Any) -> Any:
        """What `item` of a known tensor gives; None for everything else."""
        if func is not torch.ops.aten._local_scalar_dense.default:
            return None
        known = self._of(args[0])
        return None if known is None else known.item()

    def give(self, func: Any, args: Any, kwargs: Any, made: Any) -> None:
        """Notes the value of what an operator made, where it follows from numbers. Called where no mode is active."""
        makes = func.namespace == "aten" and func.overloadpacket.__name__ in FACTORIES
        if not makes and (not self._by_storage or func.namespace not in ("aten", "prims")):
            return
        results = made if isinstance(made, list | tuple) else [made]
        if not all(isinstance(one, FakeTensor) and one.numel() <= MOST_ELEMENTS for one in results):
            return
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        if not given and not makes:
            return
        if func._schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags or _holds_others(args, kwargs):
            return
        if any(self._of(tensor) is None for tensor in given):
            return
        try:
            values = func(*map(self._value, args), **{k: self._value(v) for k, v in kwargs.items()})
        except (NotImplementedError, RuntimeError):  # for a GPU alone: its value is not known then
            return
        for one, value in zip(results, values if isinstance(values, list | tuple) else [values], strict=True):
            storage = one.untyped_storage()
            self._by_storage.setdefault(int(storage._cdata), (storage, {}))[1][_place(one)] = value

    def forget_written(self, func: Any, values: Any) -> None:
        """Forgets what lies where this operator may write to."""
        if self._by_storage and func._schema.is_mutable:
            for value in values:
                for tensor in value if isinstance(value, list | tuple) else (value,):
                    if isinstance(tensor, FakeTensor) and tensor.layout is torch.strided:
                        self._by_storage.pop(int(tensor.untyped_storage()._cdata), None)

    def forget_all(self) -> None:
        """A kernel was launched, and may have written anywhere."""
        self._by_storage.clear()

    def _of(self, tensor: Any) -> torch.Tensor | None:
        if not self._by_storage or not isinstance(tensor, FakeTensor) or tensor.layout is not torch.strided:
            return None
        found = self._by_storage.get(int(tensor.untyped_storage()._cdata))
        return None if found is None else found[1].get(_place(tensor))

    def _value(self, value: Any) -> Any:
        """What stands for an argument where it is worked out: the value of a tensor, and this machine for a device."""
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return self._of(value) if isinstance(value, FakeTensor) else value


VALUES = KnownValues()
"""Of the candidate's process."""


def _place(tensor: torch.Tensor) -> Place:
    """Where in its storage it lies."""
    return tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())


def _holds_others(args: Any, kwargs: Any) -> bool:
    """Whether an operator is given lists of tensors, or a size that is a symbol."""
    given = [*args, *kwargs.values()]
    inside = [v for value in given if isinstance(value, list | tuple) for v in value]
    return any(isinstance(v, torch.SymInt) for v in (*given, *inside)) or any(
        isinstance(v, torch.Tensor) for v in inside
    )


def deep_copy(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """`copy.deepcopy` of a tensor as operators: torch copies the storage, which no trace shows."""
    if id(tensor) not in memo:
        made = tensor.detach().clone()
        if isinstance(tensor, torch.nn.Parameter):
            made = torch.nn.Parameter(made, tensor.requires_grad)
        memo[id(tensor)] = made
    copied: torch.Tensor = memo[id(tensor)]
    return copied
