"""Finds references whose infinities only pass operators with a unique answer for them.

A sum of infinities has several honest orders, some with `inf - inf`, and a product may compute `0 *
inf`: a kernel that yields NaN there is not wrong. In a maximum, a selection, an exponential or a
`logsumexp`, minus infinity is neutral, and the answer is known: -inf for `logsumexp` of a row of
minus infinities.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.tools.comparing.exactness.kind_tracker import CONVERTING_OPERATORS, may_round
from kernelwright.tools.expected.prepared_problem import ExpectedOutputs, PreparedProblem, run_on
from kernelwright.tools.nested import tensors_of
from kernelwright.tools.operators.dispatch import without_dynamo
from kernelwright.tools.problem import ProblemError

if TYPE_CHECKING:
    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types


_ABSORBING = """
    exp exp2 log log2 log10 logsumexp logaddexp logaddexp2 logcumsumexp _logcumsumexp _softmax _log_softmax sigmoid
    softplus elu log_sigmoid_forward tanh erf
"""
ABSORBING_OPERATORS = frozenset(_ABSORBING.split())
"""Operators beside the exact ones with equal results for minus infinity in every honest form."""


@without_dynamo
class _InfinitiesMet(TorchDispatchMode):
    """Notes whether an operator that may round otherwise was given an infinity."""

    def __init__(self) -> None:
        super().__init__()
        self.in_arithmetic = False

    def __torch_dispatch__(
        self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
    ) -> Any:
        name = func.overloadpacket.__name__
        is_open = (
            may_round(func, args)
            and name not in ABSORBING_OPERATORS
            and name not in CONVERTING_OPERATORS
        )
        if is_open and not self.in_arithmetic:
            operands = tensors_of([*args, *(kwargs or {}).values()])
            self.in_arithmetic = any(
                t.is_floating_point() and t.itemsize > 1 and bool(torch.isinf(t).any())
                for t in operands
            )
        return func(*args, **(kwargs or {}))


def absorbs_infinities(prepared: PreparedProblem, expected: ExpectedOutputs) -> bool:
    """Returns True if no sum or product of the reference reads an infinity on this draw; cached per
    draw."""
    if expected.absorbs_infinities is None:
        try:
            with _InfinitiesMet() as met:
                run_on(prepared, expected, expected.weights, expected.inputs)
            expected.absorbs_infinities = not met.in_arithmetic
        except (ProblemError, RuntimeError):
            expected.absorbs_infinities = False
    return expected.absorbs_infinities
