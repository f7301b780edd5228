"""Finds a problem's line with a call of an operator."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

from kernelwright.policies.inductor.refusing import PROBLEM
from kernelwright.policies.inductor.tracing.execution import examples


class _OperatorCalled(Exception):
    """The operator was called; its argument is the number of the line."""


def line_that_calls(source: str, operator: str) -> int | None:
    """Returns the first line of the problem that leads to an operator (`scatter_add`); None if
    there is none.

    Runs the reference once on tensors without values.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    operator_name = operator.strip("_")

    class Finding(TorchDispatchMode):
        def __torch_dispatch__(
            self,
            function: Callable[..., Any],
            types: Sequence[type],
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            name = str(getattr(function, "overloadpacket", function)).rpartition(".")[2].strip("_")
            if name == operator_name or name.startswith(f"{operator_name}_"):
                frames = [f for f in traceback.extract_stack() if f.filename == PROBLEM]
                if frames and frames[-1].lineno is not None:
                    raise _OperatorCalled(frames[-1].lineno)
            return function(*args, **(kwargs or {}))

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        module, inputs, init = examples(source, mode)
        with mode, torch.no_grad():
            model = module["Model"](*init)
            with Finding():
                model(*inputs)
    except _OperatorCalled as call:
        return int(call.args[0])
    except (
        Exception
    ):  # whatever else the reference does without values says nothing about the operator
        return None
    return None
