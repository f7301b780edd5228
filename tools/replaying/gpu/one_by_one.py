"""Runs steps with a synchronisation after each, to find the step that destroyed the GPU's context.

Only used after a candidate has done so; normal runs are asynchronous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kernelwright.tools.faults import clean_text
from kernelwright.tools.trace.trace import Choice, Launch, Operator, Step, Traced


class OneByOne:
    """The `around` of a run (tools/replaying/steps.py) that waits after each step."""

    def __init__(self, traced: Traced, of: str, wait: Callable[[str], Any]) -> None:
        """Stores the parts. of: the total in messages, such as "40" launches. wait: waits for the
        device; takes the step's name, and raises its error."""
        self._traced = traced
        self._of = of
        self._wait = wait
        self._launches = 0

    @contextmanager
    def __call__(self, step: Step) -> Iterator[None]:
        """Waits after an operator or launch. If torch raises an operator's error itself, the name
        is attached all the same."""
        self._launches += isinstance(step, Launch)
        try:
            yield
        finally:
            self._wait(self.name(step))

    def name(self, step: Step) -> str:
        """Returns the name of the current step: `max_pool_kernel (launch 12 of 40)`."""
        if isinstance(step, Launch):
            function = self._traced.functions[self._traced.kernels[step.kernel].function]
            return f"{clean_text(function.name, 120)} (launch {self._launches} of {self._of})"
        return clean_text(step.op, 120) if isinstance(step, Operator) else "the host code"


def count_launches(steps: Sequence[Step], chosen: Callable[[int, int], int]) -> int:
    """Counts the launches of a run. chosen: returns the alternative of a choice, from its number
    and its count of alternatives."""
    launches = choices = 0
    for step in steps:
        selected: Sequence[Step] = (step,)
        if isinstance(step, Choice):
            selected = step.alternatives[chosen(choices, len(step.alternatives))]
            choices += 1
        launches += sum(isinstance(selected_step, Launch) for selected_step in selected)
    return launches
