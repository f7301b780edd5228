"""A run whose steps are waited for one by one: what ends the GPU's context is told at the step that did it. Asked for
once a candidate has ended it; no other run waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kernelwright.tools.faults import clean_text
from kernelwright.tools.trace.trace import Choice, Launch, Operator, Step, Traced


class OneByOne:
    """What one run of a trace's steps is done with, as its `around` (tools/replaying/steps.py)."""

    def __init__(self, traced: Traced, of: str, wait: Callable[[str], Any]) -> None:
        """of: what the launches are numbered in, such as "40" (their count). wait: waits for the device; is told what
        the step is called, and raises for what it did.
        """
        self._traced, self._of, self._wait = traced, of, wait
        self._launches = 0

    @contextmanager
    def __call__(self, step: Step) -> Iterator[None]:
        """Round one operator or launch. torch may meet an operator's error itself; it has its name all the same."""
        self._launches += isinstance(step, Launch)
        try:
            yield
        finally:
            self._wait(self.name(step))

    def name(self, step: Step) -> str:
        """The name of the step that was begun last: `max_pool_kernel (launch 12 of 40)`."""
        if isinstance(step, Launch):
            function = self._traced.functions[self._traced.kernels[step.kernel].function]
            return f"{clean_text(function.name, 120)} (launch {self._launches} of {self._of})"
        return clean_text(step.op, 120) if isinstance(step, Operator) else "the host code"


def count_launches(steps: Sequence[Step], chosen: Callable[[int, int], int]) -> int:
    """Launches of one run. chosen: the alternative that is taken of a choice, by its number and how many it has."""
    launches = choices = 0
    for step in steps:
        taken: Sequence[Step] = (step,)
        if isinstance(step, Choice):
            taken = step.alternatives[chosen(choices, len(step.alternatives))]
            choices += 1
        launches += sum(isinstance(one, Launch) for one in taken)
    return launches
