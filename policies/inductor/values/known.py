"""Values of the small tensors that a constructor makes of plain numbers (`torch.linspace(0, rate, layers)`), for what
it reads from them with `item()`, `tolist()` or a comparison: tensors without values have none.
"""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.known_values import KnownValues


class KnownValuesMode(TorchDispatchMode):
    """While it is entered, over the mode of tensors without values, tensors that follow from plain numbers alone have
    their values, too. What is read from any other tensor is asked of the mode below.
    """

    def __init__(self) -> None:
        super().__init__()
        self._values = KnownValues()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if (number := self._values.number(function, args)) is not None:
            return number
        self._values.forget_written(function, (*args, *kwargs.values()))
        result = function(*args, **kwargs)
        self._values.give(function, args, kwargs, result)
        return result
