"""Values of small tensors that a constructor makes of plain numbers (`torch.linspace(0, rate,
layers)`).

Constructors read such values with `item()`, `tolist()` or comparisons; tensors without values
have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.known_values import KnownValues


class KnownValuesMode(TorchDispatchMode):
    """Mode in which tensors computed from plain numbers alone keep their values.

    Entered over the mode of tensors without values, which answers all other reads.
    """

    def __init__(self) -> None:
        super().__init__()
        self._values = KnownValues()

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if (number := self._values.number(function, args)) is not None:
            return number
        self._values.forget_written(function, (*args, *kwargs.values()))
        result = function(*args, **kwargs)
        self._values.give(function, args, kwargs, result)
        return result
