"""Inputs of a loop's step: outer tensors read by its operators.

A step is first run to collect these tensors (`collecting`). Its graph takes them as arguments: the step runs again with
the arguments in their place (`substituting`). Both are modes over all functions of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.refusing import DraftRefused

if TYPE_CHECKING:
    pass


class Unsuited(DraftRefused):
    """Raised for a loop to be unrolled."""


_collectors: list[Any] = []
"""Modes collecting the inputs of active steps, outermost first."""


@contextmanager
def pausing() -> Iterator[None]:
    """Pauses collection for the active steps; steps started inside are collected."""
    before = [c.paused for c in _collectors]
    for collector in _collectors:
        collector.paused = True
    try:
        yield
    finally:
        for collector, paused in zip(_collectors, before, strict=True):
            collector.paused = paused


@contextmanager
def collecting(carried: list[Any]) -> Iterator[list[Any]]:
    """Collects the outside tensors torch functions receive inside a step, each once."""
    import torch
    from torch.overrides import TorchFunctionMode

    read_tensors: list[Any] = []
    known_tensors = {id(v): v for v in carried}

    class Collecting(TorchFunctionMode):
        paused = False

        def __torch_function__(
            self,
            function: Callable[..., Any],
            types: Sequence[type],
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            if self.paused:
                return function(*args, **(kwargs or {}))
            # `x.device` reads an attribute through `__get__`: no step needs x for this.
            attribute = getattr(function, "__name__", "") == "__get__"
            if attribute and not isinstance(result := function(*args), torch.Tensor):
                return result  # `x.device`: no step needs x for it
            for value in torch.utils._pytree.tree_leaves((args, kwargs or {})):
                if isinstance(value, torch.Tensor) and id(value) not in known_tensors:
                    known_tensors[id(value)] = value
                    read_tensors.append(value)
            # torch counts in-place changes of a tensor in its version.
            versions = [v._version for v in read_tensors]
            result = function(*args, **(kwargs or {}))
            if versions != [v._version for v in read_tensors[: len(versions)]]:
                raise Unsuited(
                    "a loop over a size changes in place a tensor that was there before it"
                )
            for value in torch.utils._pytree.tree_leaves(result):
                if isinstance(value, torch.Tensor):
                    known_tensors[id(value)] = (
                        value  # kept, so that no other tensor gets its identity
                    )
            return result

    with Collecting() as collector:
        _collectors.append(collector)
        try:
            yield read_tensors
        finally:
            _collectors.pop()


@contextmanager
def substituting(new: dict[int, Any]) -> Iterator[None]:
    """Other tensors in the place of some, wherever a function of torch is given them."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Substituting(TorchFunctionMode):
        def __torch_function__(
            self,
            function: Callable[..., Any],
            types: Sequence[type],
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            args, kwargs = torch.utils._pytree.tree_map(
                lambda v: new.get(id(v), v), (tuple(args), kwargs or {})
            )
            return function(*args, **kwargs)

    with Substituting():
        yield
