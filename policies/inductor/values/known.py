"""Values of the small tensors that a constructor makes of plain numbers (`torch.linspace(0, rate, layers)`), for what
it reads from them with `item()`, `tolist()` or a comparison: tensors without values have none.
"""

from __future__ import annotations

import weakref
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

MOST = 4096
"""Elements of a tensor whose values are kept."""


class KnownValues(TorchDispatchMode):
    """While it is entered, over the mode of tensors without values, tensors that follow from plain numbers alone have
    their values, too. What is read from any other tensor is asked of the mode below.
    """

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[int, tuple[Any, Any]] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        import torch
        from torch.utils._pytree import tree_leaves

        kwargs = kwargs or {}
        known, reals = self._real_arguments(function, args, kwargs)
        if known and function is torch.ops.aten._local_scalar_dense.default:
            return _computed(function, *reals)
        made = function(*args, **kwargs)
        if function._schema.is_mutable and any(self._value_of(a) is not None for a in (*args, *kwargs.values())):
            self._values.clear()  # what is written to has other values afterwards, and so have its views
        if known and all(map(_is_small, leaves := tree_leaves(made))):
            for leaf, value in zip(leaves, tree_leaves(_computed(function, *reals)), strict=True):
                self._values[id(leaf)] = (weakref.ref(leaf), value)
        return made

    def _real_arguments(self, function: Any, args: Any, kwargs: Any) -> tuple[bool, Any]:
        """Whether the result follows from what is known; and the arguments with values in the place of tensors."""
        import torch
        from torch.utils._pytree import tree_flatten, tree_unflatten

        leaves, form = tree_flatten((args, kwargs))
        if (
            torch.Tag.nondeterministic_seeded in function.tags
            or function._schema.is_mutable
            or "empty" in str(function)
        ):
            return False, None
        real: list[Any] = []
        for leaf in leaves:
            value = self._value_of(leaf) if isinstance(leaf, torch.Tensor) else leaf
            if (value is None) != (leaf is None) or isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
                return False, None
            real.append(torch.device("cpu") if isinstance(leaf, torch.device) else value)
        return True, tree_unflatten(real, form)

    def _value_of(self, tensor: Any) -> Any:
        found = self._values.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None


def _is_small(made: Any) -> bool:
    import torch

    if not isinstance(made, torch.Tensor) or any(not isinstance(n, int) for n in made.shape):
        return False
    return made.numel() <= MOST


def _computed(function: Any, args: Any, kwargs: Any) -> Any:
    """The function of tensors that have values, whatever mode is entered."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        return function(*args, **kwargs)
